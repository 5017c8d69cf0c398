"""Virtual time passes at once, and in order."""

import asyncio

import pytest

from protos.messages import StopCampaign
from services.bus import DeliveryPolicy, MemoryBroker, MemoryBus
from services.clock import RealClock, VirtualClock, run_virtual


def test_an_hour_passes_without_waiting_and_timers_fire_in_order():
    clock = VirtualClock()
    woken = []

    async def sleeper(seconds):
        await clock.sleep(seconds)
        woken.append((seconds, clock.monotonic_s()))

    async def main():
        began_s = clock.now_s()
        await asyncio.gather(sleeper(3600), sleeper(1), sleeper(60))
        return clock.now_s() - began_s

    real = RealClock()
    began_s = real.monotonic_s()
    assert run_virtual(main()) == pytest.approx(3600)
    assert real.monotonic_s() - began_s < 60
    assert [seconds for seconds, _ in woken] == [1, 60, 3600]


def test_time_outs_follow_virtual_time():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(1000)


def test_redelivery_follows_virtual_time():
    async def main():
        clock = VirtualClock()
        bus = MemoryBus(MemoryBroker(clock))
        policy = DeliveryPolicy(ack_wait_s=600)
        inbox = await bus.commands("scheduler", "scheduler", StopCampaign, policy=policy)
        await bus.publish("scheduler", StopCampaign("c", "enough"))
        await anext(inbox)
        second = await anext(inbox)
        return second.attempt, clock.monotonic_s()

    assert run_virtual(main()) == (2, pytest.approx(600))
