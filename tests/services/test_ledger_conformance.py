"""What every ledger does, in memory and over a real broker."""

import asyncio

import msgspec
import pytest

from protos import codec, subjects
from services import telemetry
from services.errors import Conflict
from services.ledger import Unreadable


class Granted(msgspec.Struct, frozen=True, tag="granted"):
    holder: str


class EndedWell(msgspec.Struct, frozen=True, tag="ended_well"):
    by: str


class EndedBadly(msgspec.Struct, frozen=True, tag="ended_badly"):
    by: str


class FromTheFuture(msgspec.Struct, frozen=True, tag="from_the_future"):
    what: str


Events = Granted | EndedWell | EndedBadly


async def everything(ledger, **bounds):
    return [recorded async for recorded in ledger.read(**bounds)]


async def test_events_are_read_back_in_order_with_their_place(world):
    ledger = await world.ledger(Events)
    seqs = [
        await ledger.append("trial", "t1", Granted("a"), 0),
        await ledger.append("trial", "t2", Granted("b"), 0),
        await ledger.append("trial", "t1", EndedWell("a"), 1),
    ]
    records = await everything(ledger)

    assert seqs == [1, 2, 3]
    assert [(r.seq, r.entity, r.id, r.event) for r in records] == [
        (1, "trial", "t1", Granted("a")),
        (2, "trial", "t2", Granted("b")),
        (3, "trial", "t1", EndedWell("a")),
    ]
    assert records[0].raw == codec.encode(Granted("a"))
    assert records[0].time_s <= records[1].time_s <= records[2].time_s


async def test_an_empty_ledger_has_no_head_and_no_last(world):
    ledger = await world.ledger(Events)
    assert await ledger.head() == 0
    assert await ledger.last("trial", "t1") == 0
    assert await everything(ledger) == []


async def test_last_is_the_entitys_own_last_event_whatever_its_name(world):
    ledger = await world.ledger(Events)
    await ledger.append("trial", "t1", Granted("a"), 0)
    await ledger.append("trial", "t1", EndedWell("a"), 1)
    await ledger.append("trial", "t2", Granted("a"), 0)
    assert await ledger.last("trial", "t1") == 2
    assert await ledger.head() == 3


async def test_a_change_that_expects_an_old_state_is_refused_with_the_numbers(world):
    ledger = await world.ledger(Events)
    await ledger.append("trial", "t1", Granted("a"), 0)
    await ledger.append("trial", "t1", Granted("b"), 1)
    with pytest.raises(Conflict) as caught:
        await ledger.append("trial", "t1", Granted("c"), 1)
    conflict = caught.value
    assert (conflict.entity, conflict.id, conflict.expected, conflict.actual) == (
        "trial",
        "t1",
        1,
        2,
    )
    assert await ledger.head() == 2


async def test_an_entity_is_created_once(world):
    ledger = await world.ledger(Events)
    await ledger.append("trial", "t1", Granted("a"), 0)
    with pytest.raises(Conflict):
        await ledger.append("trial", "t1", Granted("b"), 0)


async def test_other_entities_do_not_disturb_a_comparison(world):
    ledger = await world.ledger(Events)
    await ledger.append("trial", "t1", Granted("a"), 0)
    for number in range(5):
        await ledger.append("candidate", f"t{number}", Granted("a"), 0)
        await ledger.append("trial", f"t1{number}", Granted("a"), 0)
    assert await ledger.append("trial", "t1", EndedWell("a"), 1) == 12


async def test_of_two_different_terminal_events_the_second_is_refused(world):
    ledger, other = await world.ledger(Events), await world.ledger(Events)
    granted = await ledger.append("trial", "t1", Granted("a"), 0)
    outcomes = await asyncio.gather(
        ledger.append("trial", "t1", EndedWell("a"), granted),
        other.append("trial", "t1", EndedBadly("b"), granted),
        return_exceptions=True,
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict", "int"]
    assert len(await everything(ledger)) == 2


async def test_a_zombies_late_commit_is_refused_and_the_new_holder_commits(world):
    zombie, scheduler, heir = [await world.ledger(Events) for _ in range(3)]
    first_epoch = await scheduler.append("trial", "t1", Granted("zombie"), 0)
    second_epoch = await scheduler.append("trial", "t1", Granted("heir"), first_epoch)

    with pytest.raises(Conflict):
        await zombie.append("trial", "t1", EndedWell("zombie"), first_epoch)
    await heir.append("trial", "t1", EndedWell("heir"), second_epoch)

    assert [r.event for r in await everything(scheduler)] == [
        Granted("zombie"),
        Granted("heir"),
        EndedWell("heir"),
    ]


async def test_of_many_at_once_exactly_one_wins(world):
    ledgers = [await world.ledger(Events) for _ in range(4)]
    outcomes = await asyncio.gather(
        *(
            ledger.append("trial", "t1", Granted(f"{n}-{i}"), 0)
            for n, ledger in enumerate(ledgers)
            for i in range(8)
        ),
        return_exceptions=True,
    )
    won = [outcome for outcome in outcomes if isinstance(outcome, int)]
    assert won == [1]
    assert all(isinstance(outcome, int | Conflict) for outcome in outcomes)


async def test_an_unconditional_append_takes_any_state(world):
    ledger = await world.ledger(Events)
    for number in range(3):
        assert await ledger.append("engine", "h1", Granted("x"), None) == number + 1


async def test_reading_keeps_to_its_bounds_over_many_pages(world):
    ledger = await world.ledger(Events)
    for number in range(600):
        await ledger.append("trial", f"t{number}", Granted("a"), None)
    assert [r.seq for r in await everything(ledger)] == list(range(1, 601))
    assert [r.seq for r in await everything(ledger, from_seq=250, until=520)] == list(
        range(250, 521)
    )
    assert [r.seq for r in await everything(ledger, from_seq=599, until=9999)] == [599, 600]
    assert await everything(ledger, from_seq=601) == []


async def test_a_follower_sees_what_was_and_what_comes(world):
    ledger = await world.ledger(Events)
    await ledger.append("trial", "t1", Granted("before"), 0)
    follower = ledger.follow()
    async with asyncio.timeout(20):
        first = await anext(follower)
        await ledger.append("trial", "t1", EndedWell("after"), 1)
        second = await anext(follower)
    await follower.aclose()
    assert [first.event, second.event] == [Granted("before"), EndedWell("after")]


async def test_a_follower_starts_where_it_is_told(world):
    ledger = await world.ledger(Events)
    for number in range(5):
        await ledger.append("trial", f"t{number}", Granted("a"), 0)
    follower = ledger.follow(from_seq=4)
    async with asyncio.timeout(20):
        assert (await anext(follower)).seq == 4
    await follower.aclose()


async def test_nothing_committed_is_lost_or_repeated_when_the_broker_is_killed(world, eventually):
    writer, reader = await world.ledger(Events), await world.ledger(Events)
    committed: list[int] = []
    followed: list[int] = []

    async def write():
        last = 0
        for number in range(400):
            last = await writer.append("trial", "t1", Granted(str(number)), last)
            committed.append(last)

    async def follow():
        async for recorded in reader.follow():
            followed.append(recorded.seq)
            if recorded.seq == 400:
                return

    following, writing = asyncio.create_task(follow()), asyncio.create_task(write())
    await eventually(lambda: len(committed) >= 20)
    await world.crash()
    async with asyncio.timeout(60):
        await asyncio.gather(writing, following)

    assert committed == list(range(1, 401))
    assert followed == committed
    assert [r.event.holder for r in await everything(reader)] == [str(n) for n in range(400)]


async def test_an_event_of_a_later_version_is_told_apart_and_passed_over(world):
    newer = await world.ledger(Events)
    await newer.append("trial", "t1", FromTheFuture("?"), 0)
    await newer.append("trial", "t1", Granted("a"), 1)
    records = await everything(newer)
    assert isinstance(records[0].event, Unreadable)
    assert records[0].event.name == "from_the_future"
    assert records[0].raw == codec.encode(FromTheFuture("?"))
    assert records[1].event == Granted("a")


async def test_an_event_carries_the_trace_it_was_appended_in(world, tmp_path):
    telemetry.setup("test", tmp_path / "traces")
    ledger = await world.ledger(Events)
    with telemetry.span("deciding"):
        trace_id = telemetry.trace_id()
        await ledger.append("trial", "t1", Granted("a"), 0)
    await ledger.append("trial", "t2", Granted("a"), 0)
    telemetry.shutdown()
    records = await everything(ledger)
    assert trace_id is not None
    assert [r.trace_id for r in records] == [trace_id, None]


@pytest.mark.parametrize(
    ("entity", "id"), [("nonsense", "t1"), ("trial", "a.b"), ("trial", "*"), ("trial", "")]
)
async def test_an_event_of_no_entity_is_refused(world, entity, id):
    ledger = await world.ledger(Events)
    with pytest.raises(subjects.SubjectError):
        await ledger.append(entity, id, Granted("a"), 0)
    with pytest.raises(subjects.SubjectError):
        await ledger.last(entity, id)
