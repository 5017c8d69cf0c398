"""Sampling depends on the request's seed alone; scores agree with what was decoded."""

import math

import pytest
import torch

from engine_host.engines.slim.sampling import logprobs_of, sample

SHARES = [0.5, 0.3, 0.15, 0.05]
LOGITS = torch.tensor([SHARES[i] for i in (2, 0, 3, 1)]).log()  # the tokens by share: 1, 3, 0, 2


def shares_of(temperature, top_p, draws=2000):
    """How often each token comes out of evenly spread draws."""
    counts = [0] * len(LOGITS)
    for index in range(draws):
        counts[sample(LOGITS, temperature, top_p, (index + 0.5) / draws)] += 1
    return [count / draws for count in counts]


def test_draws_follow_the_distribution():
    assert shares_of(1.0, 1.0) == pytest.approx([0.15, 0.5, 0.05, 0.3], abs=1e-3)


def test_temperature_flattens_the_distribution():
    roots = [math.sqrt(share) for share in (0.15, 0.5, 0.05, 0.3)]
    assert shares_of(2.0, 1.0) == pytest.approx([r / sum(roots) for r in roots], abs=1e-3)


def test_top_p_keeps_the_fewest_tokens_that_reach_it():
    assert shares_of(1.0, 0.79) == pytest.approx([0.0, 0.625, 0.0, 0.375], abs=1e-3)
    assert shares_of(1.0, 0.5) == [0.0, 1.0, 0.0, 0.0]
    assert shares_of(1.0, 0.01) == [0.0, 1.0, 0.0, 0.0]


def test_a_flat_distribution_is_cut_where_it_reaches_top_p():
    flat = torch.zeros(4000)
    drawn = {sample(flat, 1.0, 0.5, (index + 0.5) / 8000) for index in range(8000)}
    assert len(drawn) == pytest.approx(2000, abs=2)


def test_the_largest_draw_stays_inside_the_kept_tokens():
    assert sample(LOGITS, 1.0, 0.79, 1.0 - 2**-53) == 3


def test_a_seed_gives_the_same_tokens_alone_and_in_company(subject, run, asked):
    sampled = {"temperature": 0.9, "top_p": 0.95}
    case = subject.cases[1]
    request = {"id": 77, "prompt": case.prompt, "max_tokens": 16, "seed": 5, **sampled}
    alone = run(subject.engine(), [request])[77]
    others = asked(subject.cases[2:5], 16, seed=8, **sampled)
    assert run(subject.engine(), [*others, request])[77] == alone
    assert alone != case.tokens[:16]


def test_another_seed_gives_other_tokens(subject, run):
    requests = [
        {"id": seed, "prompt": subject.cases[1].prompt, "max_tokens": 12, "temperature": 1.0}
        | {"seed": seed}
        for seed in range(4)
    ]
    made = run(subject.engine(), requests)
    assert len({tuple(tokens) for tokens in made.values()}) == 4


def test_scores_agree_with_the_log_probabilities_of_decoding(subject):
    engine = subject.engine()
    prompt = subject.cases[3].prompt
    engine.submit({"id": 1, "prompt": prompt, "max_tokens": 20, "logprobs": True, "seed": 3})
    tokens, logprobs = [], []
    while engine.busy():
        for output in engine.step():
            tokens += output["tokens"]
            logprobs += output["logprobs"]
    score = engine.score([{"prompt": prompt, "output": tokens}])[0]
    assert score["logprobs"] == pytest.approx(logprobs, abs=1e-4)
    assert score["gaps"] == [0.0] * 20
    assert score["top"] == tokens


def test_a_token_that_is_not_the_largest_has_its_gap(small):
    engine = small.engine()
    case = small.cases[0]
    wrong = (case.tokens[0] + 1) % 512
    score = engine.score([{"prompt": case.prompt, "output": [wrong, *case.tokens[1:4]]}])[0]
    right = engine.score([{"prompt": case.prompt, "output": case.tokens[:1]}])[0]
    assert score["top"][0] == case.tokens[0]
    assert score["gaps"][0] == pytest.approx(right["logprobs"][0] - score["logprobs"][0], abs=1e-4)
    assert score["gaps"][0] > 0.0


def test_scoring_does_not_disturb_what_runs(small, asked):
    engine = small.engine()
    case = small.cases[2]
    engine.submit(asked([case], 16)[0])
    tokens = []
    while engine.busy():
        for output in engine.step():
            tokens += output["tokens"]
        engine.score([{"prompt": case.prompt[:5], "output": case.prompt[5:9]}])
    assert tokens == case.tokens[:16]


def test_tokens_in_bfloat16_are_near_the_largest_logit_in_float32(subject, run, asked):
    cases = subject.cases[:8]
    made = run(subject.engine("bfloat16"), asked(cases, 32))
    sequences = [{"prompt": c.prompt, "output": made[i]} for i, c in enumerate(cases)]
    gaps = [gap for score in subject.engine().score(sequences) for gap in score["gaps"]]
    assert max(gaps) < 0.75
    assert sum(gap == 0.0 for gap in gaps) > 0.85 * len(gaps)


def test_log_probabilities_of_a_row_sum_to_one():
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    total = sum(math.exp(logprobs_of(logits, [token])[0]) for token in range(3))
    assert total == pytest.approx(1.0, abs=1e-6)
