"""What every bus does, in memory and over a real broker."""

import asyncio

import msgspec
import pytest

from protos import codec, subjects
from services import telemetry
from services.bus import DeliveryPolicy
from services.errors import AskRefused, AskTimeout, AskTrouble, NoAnswer, Refused, TroubleError


class Dig(msgspec.Struct, frozen=True, tag="dig"):
    hole: str


class Fill(msgspec.Struct, frozen=True, tag="fill"):
    hole: str


class HowDeep(msgspec.Struct, frozen=True, tag="how_deep"):
    hole: str


class Depth(msgspec.Struct, frozen=True, tag="depth"):
    hole: str
    depth_m: float


class Noise(msgspec.Struct, frozen=True, tag="noise"):
    loudness: int


class Smell(msgspec.Struct, frozen=True, tag="smell"):
    of: str


QUICK = DeliveryPolicy(ack_wait_s=0.5, max_attempts=3, retry_delays_s=(0.02, 0.05))
PATIENT = DeliveryPolicy(ack_wait_s=20.0, max_attempts=10, retry_delays_s=(0.02,))
SHORT = DeliveryPolicy(ack_wait_s=2.0, max_attempts=10, retry_delays_s=(0.02,))


async def taken(inbox, count):
    """The next `count` deliveries."""
    async with asyncio.timeout(30):
        return [await anext(inbox) for _ in range(count)]


async def test_a_command_reaches_its_room_and_is_gone_once_acked(world):
    bus = await world.bus()
    inbox = await bus.commands("digger", "digger", Dig | Fill)

    await bus.publish("digger", Dig("a"))
    await bus.publish("digger", Fill("b"))
    first, second = await taken(inbox, 2)
    await first.ack()
    await second.ack()
    await inbox.aclose()
    again = await bus.commands("digger", "digger", Dig | Fill)
    await bus.publish("digger", Dig("c"))

    assert (first.command, second.command) == (Dig("a"), Fill("b"))
    assert first.subject == "pt.v1.cmd.digger.dig"
    assert (await taken(again, 1))[0].command == Dig("c")


async def test_mail_published_before_anybody_listens_is_kept(world):
    bus = await world.bus()
    await bus.publish("digger", Dig("early"))
    inbox = await bus.commands("digger", "digger", Dig)
    assert (await taken(inbox, 1))[0].command == Dig("early")


async def test_rooms_that_share_a_durable_name_compete_for_its_mail(world, eventually):
    bus, other = await world.bus(), await world.bus()
    inboxes = [await b.commands("digger", "digger", Dig, policy=PATIENT) for b in (bus, other)]
    done: list[str] = []

    async def work(inbox):
        async for delivery in inbox:
            done.append(delivery.command.hole)
            await delivery.ack()

    workers = [asyncio.create_task(work(inbox)) for inbox in inboxes]
    for number in range(20):
        await bus.publish("digger", Dig(str(number)))
    await eventually(lambda: len(done) == 20)
    for inbox in inboxes:
        await inbox.aclose()
    await asyncio.gather(*workers)

    assert sorted(done, key=int) == [str(number) for number in range(20)]


async def test_mail_that_nobody_settles_comes_again_and_counts_its_attempts(world):
    bus = await world.bus()
    inbox = await bus.commands("digger", "digger", Dig, policy=QUICK)
    await bus.publish("digger", Dig("a"))

    first, second = await taken(inbox, 2)

    assert (first.attempt, second.attempt) == (1, 2)
    assert second.command == Dig("a")


async def test_mail_that_is_being_worked_on_does_not_come_again(world):
    bus = await world.bus()
    inbox = await bus.commands("digger", "digger", Dig, policy=QUICK)
    await bus.publish("digger", Dig("slow"))
    (slow,) = await taken(inbox, 1)

    for _ in range(10):  # together twice the ack wait
        await asyncio.sleep(QUICK.ack_wait_s / 5)
        await slow.working()
    await slow.ack()
    await bus.publish("digger", Dig("next"))

    (following,) = await taken(inbox, 1)
    assert following.command == Dig("next")


async def test_mail_is_a_dead_letter_with_its_raw_bytes_after_its_last_retry(world):
    bus = await world.bus()
    inbox = await bus.commands("digger", "digger", Dig, policy=QUICK)
    await bus.publish("digger", Dig("rock"))

    outcomes = []
    for _ in range(QUICK.max_attempts):
        (delivery,) = await taken(inbox, 1)
        outcomes.append(await delivery.retry("too hard"))
    await bus.publish("digger", Dig("sand"))

    assert outcomes == [True, True, False]
    assert (await taken(inbox, 1))[0].command == Dig("sand")
    (letter,) = await bus.dead_letters("digger")
    assert letter.raw == codec.encode(Dig("rock"))
    assert letter.subject == "pt.v1.cmd.digger.dig"
    assert letter.attempts == 3
    assert "too hard" in letter.reason


@pytest.mark.parametrize(
    "raw", [b"\xff\x00not json", b'{"type":"unknown"}', b'{"type":"dig","hole":3}', b""]
)
async def test_undecodable_mail_is_a_dead_letter_with_its_raw_bytes(world, raw):
    bus = await world.bus()
    inbox = await bus.commands("digger", "digger", Dig)
    await world.raw_command("pt.v1.cmd.digger.dig", raw)
    await bus.publish("digger", Dig("good"))

    (delivery,) = await taken(inbox, 1)

    assert delivery.command == Dig("good")
    (letter,) = await bus.dead_letters("digger")
    assert letter.raw == raw
    assert "undecodable" in letter.reason


async def test_mail_is_settled_once(world):
    bus = await world.bus()
    inbox = await bus.commands("digger", "digger", Dig)
    await bus.publish("digger", Dig("a"))
    (delivery,) = await taken(inbox, 1)
    await delivery.ack()
    with pytest.raises(RuntimeError, match="settled as ack, then as retry"):
        await delivery.retry("no")


async def test_a_member_with_a_key_gets_only_what_is_addressed_to_it(world):
    bus = await world.bus()
    inbox = await bus.commands("digger", "digger-north", Dig, key="north")
    await bus.publish("digger", Dig("s"), key="south")
    await bus.publish("digger", Dig("n"), key="north")
    (delivery,) = await taken(inbox, 1)
    assert (delivery.command, delivery.key) == (Dig("n"), "north")


async def test_a_command_published_once_under_a_key_is_not_stored_again(world):
    bus = await world.bus()
    inbox = await bus.commands("digger", "digger", Dig)
    first = await bus.publish("digger", Dig("a"), key="k", once=True)
    (delivery,) = await taken(inbox, 1)
    await delivery.ack()
    second = await bus.publish("digger", Dig("a"), key="k", once=True)
    other = await bus.publish("digger", Dig("a"), key="k2", once=True)
    assert (first, second, other) == (True, False, True)


async def test_an_inbox_closed_while_it_waits_costs_the_next_reader_nothing(world):
    bus = await world.bus()
    patient = DeliveryPolicy(ack_wait_s=60.0)
    inbox = await bus.commands("digger", "digger", Dig, policy=patient)
    waiting = asyncio.create_task(anext(inbox, None))
    await asyncio.sleep(0.05)
    await inbox.aclose()
    assert await waiting is None

    await bus.publish("digger", Dig("a"))
    again = await bus.commands("digger", "digger", Dig, policy=patient)
    (delivery,) = await taken(again, 1)
    assert delivery.attempt == 1


async def test_a_cancelled_reader_leaves_the_mail_for_the_next_read(world):
    bus = await world.bus()
    inbox = await bus.commands("digger", "digger", Dig, policy=DeliveryPolicy(ack_wait_s=60.0))
    reader = asyncio.create_task(anext(inbox))
    await asyncio.sleep(0.05)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    await bus.publish("digger", Dig("a"))
    (delivery,) = await taken(inbox, 1)
    assert delivery.attempt == 1


async def test_mail_handed_back_is_delivered_at_once(world):
    bus = await world.bus()
    inbox = await bus.commands("digger", "digger", Dig, policy=DeliveryPolicy(ack_wait_s=60.0))
    await bus.publish("digger", Dig("a"))
    (first,) = await taken(inbox, 1)
    await first.hand_back()
    (second,) = await taken(inbox, 1)
    assert second.command == Dig("a")


async def test_no_confirmed_command_is_lost_when_the_broker_is_killed(world, eventually):
    bus = await world.bus()
    inbox = await bus.commands("digger", "digger", Dig, policy=PATIENT)
    confirmed: list[str] = []

    async def publish_all():
        for number in range(400):
            await bus.publish("digger", Dig(str(number)))
            confirmed.append(str(number))

    publishing = asyncio.create_task(publish_all())
    await eventually(lambda: len(confirmed) >= 20)
    await world.crash()
    await publishing
    got: set[str] = set()
    while len(got) < 400:
        (delivery,) = await taken(inbox, 1)
        got.add(delivery.command.hole)
        await delivery.ack()

    assert got == set(confirmed)


async def test_unsettled_mail_and_its_attempts_outlive_the_broker(world):
    bus = await world.bus()
    inbox = await bus.commands("digger", "digger", Dig, policy=SHORT)
    await bus.publish("digger", Dig("a"))
    for _ in range(2):
        (delivery,) = await taken(inbox, 1)
        await delivery.retry("not yet", delay_s=0.02)

    await world.crash()

    (after,) = await taken(inbox, 1)
    assert after.command == Dig("a")
    assert after.attempt == 3


async def test_a_request_is_answered(world):
    bus, asker = await world.bus(), await world.bus()

    async def depth(ask: HowDeep) -> Depth:
        return Depth(ask.hole, 2.5)

    await bus.answer("digger", HowDeep, depth)
    assert await asker.ask("digger", HowDeep("a"), Depth) == Depth("a", 2.5)


async def test_requests_are_answered_side_by_side_and_shared_by_the_members(world):
    bus, other, asker = [await world.bus() for _ in range(3)]
    asked: list[str] = []
    both_in = asyncio.Event()

    async def depth(ask: HowDeep) -> Depth:
        asked.append(ask.hole)
        if len(asked) == 2:
            both_in.set()
        await both_in.wait()  # the first is answered only once the second has come in
        return Depth(ask.hole, 1.0)

    await bus.answer("digger", HowDeep, depth)
    await other.answer("digger", HowDeep, depth)
    replies = await asyncio.gather(
        *(asker.ask("digger", HowDeep(hole), Depth, timeout_s=20) for hole in "ab")
    )
    assert {reply.hole for reply in replies} == {"a", "b"}
    assert sorted(asked) == ["a", "b"]  # each request reached one member only


async def test_a_request_under_a_key_reaches_that_member(world):
    bus = await world.bus()

    async def north(ask: HowDeep) -> Depth:
        return Depth("north", 1.0)

    await bus.answer("digger", HowDeep, north, key="north")
    assert (await bus.ask("digger", HowDeep("x"), Depth, key="north")).hole == "north"
    with pytest.raises(NoAnswer):
        await bus.ask("digger", HowDeep("x"), Depth, key="south")


async def test_a_request_that_nobody_serves_says_so_at_once(world):
    bus = await world.bus()
    with pytest.raises(NoAnswer, match=r"pt\.v1\.ask\.digger\.how_deep"):
        await bus.ask("digger", HowDeep("a"), Depth, timeout_s=30)


async def test_a_request_that_is_served_too_slowly_times_out(world):
    bus = await world.bus()
    never = asyncio.Event()

    async def slow(ask: HowDeep) -> Depth:
        await never.wait()
        return Depth(ask.hole, 1.0)

    await bus.answer("digger", HowDeep, slow)
    with pytest.raises(AskTimeout):
        await bus.ask("digger", HowDeep("a"), Depth, timeout_s=0.1)
    never.set()


@pytest.mark.parametrize(
    ("raised", "seen", "text"),
    [
        (Refused("no such hole"), AskRefused, "no such hole"),
        (TroubleError("shovel broke"), AskTrouble, "shovel broke"),
        (ZeroDivisionError("secret detail"), AskTrouble, "the room that was asked failed"),
    ],
)
async def test_what_an_answer_raises_reaches_the_asker_in_kind(world, raised, seen, text):
    bus = await world.bus()

    async def failing(ask: HowDeep) -> Depth:
        raise raised

    await bus.answer("digger", HowDeep, failing)
    with pytest.raises(seen, match=text) as caught:
        await bus.ask("digger", HowDeep("a"), Depth)
    assert "secret" not in str(caught.value)


async def test_requests_are_answered_again_after_the_broker_was_killed(world):
    bus, asker = await world.bus(), await world.bus()

    async def depth(ask: HowDeep) -> Depth:
        return Depth(ask.hole, 1.0)

    await bus.answer("digger", HowDeep, depth)
    await world.crash()
    async with asyncio.timeout(30):
        while True:
            try:
                reply = await asker.ask("digger", HowDeep("a"), Depth, timeout_s=1)
                break
            except TroubleError:
                await asyncio.sleep(0.05)
    assert reply.hole == "a"


async def test_signals_reach_those_who_listen_for_them(world):
    bus, listener = await world.bus(), await world.bus()
    noises = await listener.signals(Noise | Smell, room="digger", what="noise")
    everything = await listener.signals(Noise | Smell)

    await bus.signal("digger", "north", Smell("earth"))
    await bus.signal("digger", "north", Noise(3))

    async with asyncio.timeout(20):
        noise = await anext(noises)
        both = [await anext(everything), await anext(everything)]
    assert (noise.room, noise.what, noise.id, noise.body) == ("digger", "noise", "north", Noise(3))
    assert [signal.body for signal in both] == [Smell("earth"), Noise(3)]


async def test_a_signal_that_nobody_hears_is_lost_without_a_word(world):
    bus = await world.bus()
    await bus.signal("digger", "north", Noise(1))


async def test_a_closed_signal_stream_ends_its_reader(world):
    bus = await world.bus()
    stream = await bus.signals(Noise)
    reader = asyncio.create_task(anext(stream, None))
    await stream.aclose()
    async with asyncio.timeout(20):
        assert await reader is None


async def test_commands_requests_and_signals_carry_the_trace(world, tmp_path):
    telemetry.setup("test", tmp_path / "traces")
    bus = await world.bus()
    inbox = await bus.commands("digger", "digger", Dig)
    stream = await bus.signals(Noise)
    seen: list[str | None] = []

    async def depth(ask: HowDeep) -> Depth:
        seen.append(telemetry.trace_id())
        return Depth(ask.hole, 1.0)

    await bus.answer("digger", HowDeep, depth)
    with telemetry.span("root"):
        root = telemetry.trace_id()
        await bus.publish("digger", Dig("a"))
        await bus.signal("digger", "x", Noise(1))
        await bus.ask("digger", HowDeep("a"), Depth)
    (delivery,) = await taken(inbox, 1)
    signal = await anext(stream)
    for context in (delivery.context, signal.context):
        with telemetry.span("child", parent=context):
            seen.append(telemetry.trace_id())
    telemetry.shutdown()

    assert root is not None
    assert seen == [root, root, root]


async def test_a_body_over_the_limit_is_refused_before_it_is_sent(world):
    bus = await world.bus()
    with pytest.raises(codec.TooLargeError, match="blob"):
        await bus.publish("digger", Dig("x" * codec.MAX_BODY_BYTES))


@pytest.mark.parametrize("bad", ["", "a.b", "*", ">", "a b", "a\n", "x" * 129])
async def test_a_bad_token_is_refused_before_it_is_sent(world, bad):
    bus = await world.bus()
    with pytest.raises(subjects.SubjectError):
        await bus.publish(bad, Dig("x"))
    with pytest.raises(subjects.SubjectError):
        await bus.publish("digger", Dig("x"), key=bad)
    with pytest.raises(subjects.SubjectError):
        await bus.signal("digger", bad, Noise(1))
