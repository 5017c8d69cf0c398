"""Rooms as real processes around a real broker: ended, killed, and traced through."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from services import telemetry
from services.broker import Broker
from services.ports import open_ports
from services.settings import Settings

ROOM = """
import asyncio, os, sys
import msgspec
from services.actor import Actor
from services.bus import DeliveryPolicy
from services.hooks import on_command
from services.main import run_room
from services.ports import Ports

class Cook(msgspec.Struct, frozen=True, tag="cook"):
    dish: str

class Served(msgspec.Struct, frozen=True, tag="served"):
    by: int

class Kitchen(Actor):
    room = "kitchen"
    policy = DeliveryPolicy(ack_wait_s=1.0)

    @on_command(Cook)
    async def cook(self, command, delivery):
        print("cooking", command.dish, flush=True)
        if command.dish == sys.argv[1]:
            await asyncio.Event().wait()
        await self.ledger.append("candidate", command.dish, Served(os.getpid()), 0)

    async def stopping(self):
        print("stopping", flush=True)

sys.exit(run_room("kitchen", lambda ports, settings: Kitchen(ports)))
"""


class Cook(msgspec.Struct, frozen=True, tag="cook"):
    dish: str


class Served(msgspec.Struct, frozen=True, tag="served"):
    by: int


@pytest.fixture
async def kitchens(tmp_path):
    """Ports, and a function that starts a kitchen which hangs over one dish."""
    broker = Broker(tmp_path / "nats")
    url = await broker.start()
    script = tmp_path / "kitchen.py"
    script.write_text(ROOM)
    running: list[subprocess.Popen[str]] = []

    def start(hangs_over: str = "", **environ: str) -> subprocess.Popen[str]:
        given = {
            "PERPETUNE_NATS_URL": url,
            "PERPETUNE_RUN_DIR": str(tmp_path),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        process = subprocess.Popen(
            [sys.executable, str(script), hangs_over],
            env={**os.environ, **given, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        running.append(process)
        return process

    async with open_ports(Settings(nats_url=url, run_dir=str(tmp_path)), events=Served) as ports:
        yield ports, start
    for process in running:
        with process:
            process.kill()
    await broker.stop()


async def line_of(process):
    async with asyncio.timeout(30):
        return (await asyncio.to_thread(process.stdout.readline)).strip()


async def test_a_room_ends_in_order_when_it_is_asked_to(kitchens):
    ports, start = kitchens
    room = start()
    await ports.bus.publish("kitchen", Cook("soup"))
    assert await line_of(room) == "cooking soup"
    room.send_signal(signal.SIGTERM)
    assert await line_of(room) == "stopping"
    assert await asyncio.to_thread(room.wait, 30) == 0


async def test_mail_of_a_killed_room_goes_to_the_next_and_is_done_once(kitchens):
    ports, start = kitchens
    first = start("soup")
    await ports.bus.publish("kitchen", Cook("soup"))
    assert await line_of(first) == "cooking soup"
    first.kill()
    second = start()
    async with asyncio.timeout(30):
        served = await anext(ports.ledger.follow())
    assert served.event == Served(second.pid)
    assert await ports.ledger.head() == 1


async def test_one_commands_trace_joins_the_processes_it_passed(kitchens, tmp_path):
    ports, start = kitchens
    telemetry.setup("door", tmp_path / "traces")
    room = start()
    with telemetry.span("order"):
        trace_id = telemetry.trace_id()
        await ports.bus.publish("kitchen", Cook("soup"))
    async with asyncio.timeout(30):
        served = await anext(ports.ledger.follow())
    room.send_signal(signal.SIGTERM)
    await asyncio.to_thread(room.wait, 30)
    telemetry.shutdown()

    assert served.trace_id == trace_id
    files = list((tmp_path / "traces").glob("*.jsonl"))
    spans = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert {span["pid"] for span in spans if span["trace_id"] == trace_id} == {
        os.getpid(),
        room.pid,
    }


async def test_a_room_without_a_broker_ends_with_one_line(kitchens):
    _, start = kitchens
    room = start(PERPETUNE_NATS_URL="nats://127.0.0.1:1", PERPETUNE_CONNECT_TIMEOUT_S="0.3")
    assert await asyncio.to_thread(room.wait, 30) == 1
