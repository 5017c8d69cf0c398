"""The block cache: prefixes used again, sequences that give way, nothing lost."""

import pytest

from engine_host.engines.slim.blocks import BlockPool
from engine_host.engines.slim.sequence import Sequence, parse_request


def sequence_of(tokens):
    request = parse_request({"id": 0, "prompt": tokens, "max_tokens": 1}, 1000, 1000)
    return Sequence(request, list(tokens))


def computed(pool, tokens):
    """A sequence whose every token lies in the cache."""
    sequence = sequence_of(tokens)
    sequence.computed = pool.match_prefix(sequence)
    assert pool.grow(sequence, len(tokens))
    sequence.computed = len(tokens)
    pool.remember(sequence)
    return sequence


def test_a_prompt_seen_before_is_read_from_the_cache(subject, run, asked):
    engine = subject.engine()
    case = subject.cases[-2]
    reusable = (len(case.prompt) - 1) // 16 * 16
    first = run(engine, asked([case], 8))
    assert engine.counters()["cached_prompt_tokens"] == 0
    second = run(engine, asked([case], 8))
    assert first == second == {0: case.tokens[:8]}
    assert engine.counters()["cached_prompt_tokens"] == reusable
    assert engine.counters()["prompt_tokens"] == 2 * len(case.prompt)


def test_a_later_turn_reuses_the_answer_of_the_earlier_one(subject, run, asked):
    case = subject.cases[12]
    turn = case.prompt + case.tokens[:40] + subject.cases[11].prompt
    fresh = run(subject.engine(), [{"id": 9, "prompt": turn, "max_tokens": 8}])
    engine = subject.engine()
    run(engine, asked([case], 40))
    assert run(engine, [{"id": 9, "prompt": turn, "max_tokens": 8}]) == fresh
    reused = engine.counters()["cached_prompt_tokens"]
    assert len(case.prompt) < reused <= len(case.prompt) + 40


def test_reset_forgets_every_prefix(small, run, asked):
    engine = small.engine()
    run(engine, asked([small.cases[-1]], 2))
    engine.reset()
    run(engine, asked([small.cases[-1]], 2))
    assert engine.counters()["cached_prompt_tokens"] == 0


def test_without_prefix_caching_nothing_is_reused(small, run, asked):
    engine = small.engine(prefix_caching=False)
    for _ in range(2):
        assert run(engine, asked([small.cases[5]], 4)) == {0: small.cases[5].tokens[:4]}
    assert engine.counters()["cached_prompt_tokens"] == 0


def test_a_full_cache_sends_the_youngest_back_and_loses_no_token(subject, run, asked):
    fitting = [case for case in subject.cases if len(case.prompt) < 800]
    cases = [max(fitting, key=lambda case: len(case.prompt)), *subject.cases[:8]]
    engine = subject.engine(cache_tokens=1024)
    made = run(engine, asked(cases, 32))
    assert engine.counters()["preemptions"] > 0
    assert made == {index: case.tokens[:32] for index, case in enumerate(cases)}
    prompts = sum(len(case.prompt) for case in cases)
    assert engine.counters()["prompt_tokens"] == prompts
    assert engine.counters()["output_tokens"] == 32 * len(cases)


def test_blocks_out_of_order_give_the_same_tokens(small, run, asked):
    engine = small.engine(cache_tokens=1024)
    for turn in range(4):
        cases = small.cases[turn * 4 : turn * 4 + 4]
        made = run(engine, asked(cases))
        assert made == {index: case.tokens for index, case in enumerate(cases)}


def test_sequences_with_one_prefix_share_its_blocks():
    pool = BlockPool(16, 4, prefix_caching=True)
    one = computed(pool, range(10))
    two = computed(pool, [*range(8), 50, 51])
    assert two.blocks[:2] == one.blocks[:2]
    assert two.blocks[2] != one.blocks[2]
    assert pool.available == 16 - 4


def test_the_last_token_of_a_prompt_is_never_matched():
    pool = BlockPool(16, 4, prefix_caching=True)
    computed(pool, range(8))
    assert pool.match_prefix(sequence_of(range(8))) == 4


def test_the_same_tokens_after_another_prefix_do_not_match():
    pool = BlockPool(16, 4, prefix_caching=True)
    computed(pool, range(12))
    assert pool.match_prefix(sequence_of([90, 91, 92, 93, 4, 5, 6, 7, 8])) == 0


def test_space_is_taken_from_the_prefix_unused_for_longest():
    pool = BlockPool(4, 4, prefix_caching=True)
    for start in (0, 100):
        pool.release(computed(pool, range(start, start + 8)))
    assert pool.available == 4
    kept = computed(pool, range(100, 109))
    assert len(kept.blocks) == 3
    assert pool.match_prefix(sequence_of(range(0, 9))) == 4


def test_a_pool_that_is_too_small_changes_nothing_when_it_refuses():
    pool = BlockPool(2, 4, prefix_caching=True)
    sequence = sequence_of(range(9))
    assert not pool.grow(sequence, 9)
    assert sequence.blocks == []
    assert pool.available == 2


def test_a_growing_sequence_keeps_its_blocks_in_a_row():
    pool = BlockPool(64, 4, prefix_caching=False)
    one, two = sequence_of([1]), sequence_of([2])
    for tokens in range(1, 60):
        assert pool.grow(one, tokens)
        assert pool.grow(two, tokens)
    for sequence in (one, two):
        first = sequence.blocks[0]
        assert sequence.blocks == list(range(first, first + 15))


@pytest.mark.parametrize("blocks", [1, 7])
def test_every_block_comes_back(blocks):
    pool = BlockPool(blocks, 4, prefix_caching=True)
    for start in range(0, 1000, 50):
        sequence = computed(pool, range(start, start + 4 * blocks))
        assert pool.available == 0
        pool.release(sequence)
        assert pool.available == blocks
