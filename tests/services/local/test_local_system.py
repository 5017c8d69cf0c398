"""The system's processes, on a real broker, with stand-ins for the rooms."""

import asyncio
import contextlib
import os
import shutil
from pathlib import Path

import pytest

from protos import events as e
from protos.messages import AskStatus, CampaignStatus
from recorded_campaign import CAMPAIGN, paused
from services.cli.load import load
from services.errors import BrokerError, TroubleError
from services.local.run_folder import RunFolderError, create
from services.local.system import CONTROL_NICE, Room, SystemFailed, open_ledger, open_system

SUPPORT = Path(__file__).parents[2] / "support"
ROOT = SUPPORT.parents[1]
PATH = {"PYTHONPATH": os.pathsep.join(map(str, (SUPPORT / "stand_in_rooms", SUPPORT, ROOT)))}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return create(tmp_path / "run", CAMPAIGN)


async def test_rooms_run_at_their_priority_and_end_with_the_system(folder):
    rooms = (Room("evaluator", env=PATH), Room("engine_host", nice=0, env=PATH))

    async with open_system(folder, rooms=rooms) as system:
        control, host = (system.supervisor.pid(room.name) for room in rooms)
        mine = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, control) == min(19, mine + CONTROL_NICE)
        assert os.getpriority(os.PRIO_PROCESS, host) == mine

    for pid in (control, host):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert folder.live_url() is None


async def test_a_room_answers_through_the_systems_ports(folder):
    async with open_system(folder, rooms=(Room("scheduler", env=PATH),)) as system:
        answer = None
        while answer is None:
            with contextlib.suppress(TroubleError):  # it is still starting
                answer = await system.ports.bus.ask(
                    "scheduler", AskStatus(CAMPAIGN), CampaignStatus, timeout_s=5.0
                )

    assert answer.state == "running"


async def test_the_ledger_of_a_run_is_read_whether_it_runs_or_not(folder):
    recording = paused()
    async with open_system(folder, rooms=()) as system:
        for known in recording.events:
            await system.ports.ledger.append(known.entity, known.id, known.event, None)
        async with open_ledger(folder) as ports:
            live = [r.event async for r in ports.ledger.read()]

    async with open_ledger(folder) as ports:
        later = [r.event async for r in ports.ledger.read()]

    assert live == later == [known.event for known in recording.events]
    assert isinstance(later[-1], e.CampaignPaused)


def test_a_folder_whose_campaign_never_started_says_so(folder):
    with pytest.raises(BrokerError, match="holds no ledger"):
        load(folder)


async def test_two_systems_cannot_share_a_run_folder(folder):
    async with open_system(folder, rooms=()):
        with pytest.raises(RunFolderError, match="in use by another"):
            async with open_system(folder, rooms=()):
                pass


async def test_a_disk_that_fills_up_ends_a_running_campaign_with_a_reason(folder, monkeypatch):
    async with open_system(folder, rooms=()) as system:
        system.check()
        usage = shutil.disk_usage(folder.path)._replace(free=1_000_000)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)

        with pytest.raises(SystemFailed, match="is full, 1 MB are left: free some"):
            system.check()


async def test_a_room_that_ends_again_and_again_is_said_with_its_last_words(folder, tmp_path):
    (tmp_path / "evaluator.py").write_text("raise SystemExit('bad setting')\n")
    room = Room("evaluator", env={"PYTHONPATH": str(tmp_path)})

    async with open_system(folder, rooms=(room,)) as system:
        while len(system.supervisor.exits) < 3:
            await system.supervisor.exit_of("evaluator")
            await asyncio.sleep(0)

        with pytest.raises(SystemFailed, match=r"exit code 1\): bad setting"):
            system.check()
