"""Workloads: fresh by seed, the same again from the same seed, within the model's context."""

import json
from pathlib import Path

import pytest

from evaluator.workloads.base import Generator, WorkloadError, prefix_hit
from evaluator.workloads.content import TEXTS, RandomContent, TextContent, text_content
from evaluator.workloads.make import make_generator, make_script, pairs_of
from evaluator.workloads.trace import parse_trace
from protos.target import WORKLOADS, Workload
from protos.trial import Plan, StopRule
from tests.evaluator.made_trials import make_lease

MOONCAKE = "\n".join(
    json.dumps(
        {
            "timestamp": 500 * i,
            "input_length": 3000 + 700 * (i % 5),
            "output_length": 50 + 30 * (i % 7),
            "hash_ids": [0, 1, 2, 100 + i],
        }
    )
    for i in range(40)
).encode()
AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n" + b"\n".join(
    f"2023-11-16 18:15:{i:02d}.6805900,{400 + 90 * i},{20 + i}".encode() for i in range(50)
)


def generator(name: str, max_context: int = 2048, **params: float) -> Generator:
    trace_format = "mooncake_jsonl" if name == "trace" else None
    workload = Workload(name, trace_format=trace_format, params=params)
    trace = MOONCAKE if name == "trace" else None
    return make_generator(workload, RandomContent(), max_context, trace)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("tier", ["fast", "slow"])
def test_a_seed_gives_the_same_pairs_again_and_another_seed_others(name: str, tier: str) -> None:
    one, again = getattr(generator(name), tier), getattr(generator(name), tier)
    assert [one("s1", i) for i in range(4)] == [again("s1", i) for i in range(4)]
    assert one("s1", 0) != one("s2", 0)
    prompts = [r.prompt for i in range(6) for r in one("s1", i).requests]
    assert len(set(prompts)) == len(prompts)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_two_tiers_share_no_content(name: str) -> None:
    made = generator(name)
    fast = {r.prompt for i in range(4) for r in made.fast("s", i).requests}
    slow = {r.prompt for i in range(4) for r in made.slow("s", i).requests}
    assert not fast & slow


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("max_context", [64, 300, 8192])
def test_every_request_fits_the_context_of_the_model(name: str, max_context: int) -> None:
    made = generator(name, max_context)
    for pair in [made.fast("s", 1), made.slow("s", 1)]:
        for request in (*pair.requests, *pair.warm_up):
            assert request.prompt
            assert request.max_tokens >= 1
            assert len(request.prompt) + request.max_tokens <= max_context


@pytest.mark.parametrize("name", WORKLOADS)
def test_fast_pairs_are_sent_at_once_and_slow_ones_in_open_loop(name: str) -> None:
    made = generator(name)
    assert all(r.at_s == 0.0 for r in made.fast("s", 0).requests)
    slow = made.slow("s", 0).requests
    times = [r.at_s for r in slow]
    assert times == sorted(times)
    assert times[0] == 0.0
    assert len(slow) == 1 or times[-1] > 0.0


@pytest.mark.parametrize("name", WORKLOADS)
def test_which_side_runs_first_is_a_fair_coin(name: str) -> None:
    made = generator(name)
    first = [made.fast("s", i).first for i in range(400)]
    assert 150 < first.count("A") < 250


def test_single_sends_one_short_request_fast_and_holds_out_longer_ones() -> None:
    made = generator("single")
    fast = [made.fast("s", i).requests for i in range(100)]
    assert all(len(r) == 1 and 4 <= len(r[0].prompt) <= 8 for r in fast)
    assert {r[0].max_tokens for r in fast} == {4, 5, 6}
    slow = [made.slow("s", i) for i in range(50)]
    assert all(32 <= len(p.requests[0].prompt) <= 128 for p in slow)
    assert all(len(p.warm_up) == 2 for p in slow)  # a batch size the fast tier never shows


@pytest.mark.parametrize("name", ["chat", "agent", "trace"])
def test_conversations_share_prefixes_and_say_how_much(name: str) -> None:
    made = generator(name)
    assert prefix_hit([made.slow("s", i) for i in range(10)]) > 0.2
    assert prefix_hit([generator("code").slow("s", i) for i in range(10)]) < 0.05


def test_slow_episodes_hold_out_batch_sizes() -> None:
    for name in ("chat", "code", "agent"):
        made = generator(name)
        sizes = {len(made.slow("s", i).requests) for i in range(40)}
        assert len(sizes) > 1


def test_an_unknown_workload_names_the_known_ones() -> None:
    with pytest.raises(WorkloadError, match="single, chat, code, agent, trace"):
        generator("poems")


def test_an_unknown_parameter_names_the_known_ones() -> None:
    with pytest.raises(WorkloadError, match="no parameter 'speed': use one of"):
        generator("single", speed=2.0)


def test_a_parameter_overrides_its_default() -> None:
    made = generator("single", fast_prompt_min=30.0, fast_prompt_max=30.0)
    assert len(made.fast("s", 0).requests[0].prompt) == 30


def test_a_script_holds_all_pairs_and_some_spares() -> None:
    plan = Plan("fast", StopRule(max_units=24))
    cold = Plan("cold", StopRule(max_units=8), starts=8, pairs_per_start=2)
    assert pairs_of(plan) == 36
    assert pairs_of(cold) == 16
    script = make_script(make_lease(plan=plan), "seed", generator("chat"), None, 2048)
    assert len(script.pairs) == 36
    assert script.share["prefix_hit"] > 0.2
    assert script.share["prompt_tokens_mean"] > 10


def test_mooncake_rows_are_read() -> None:
    rows = parse_trace(MOONCAKE, "mooncake_jsonl")
    assert len(rows) == 40
    assert (rows[1].at_s, rows[1].prompt_tokens, rows[1].output_tokens) == (0.5, 3700, 80)
    assert rows[1].blocks == (0, 1, 2, 101)


def test_azure_rows_are_read() -> None:
    rows = parse_trace(AZURE, "azure_csv")
    assert len(rows) == 50
    assert rows[3].at_s == pytest.approx(3.0)
    assert (rows[3].prompt_tokens, rows[3].output_tokens) == (670, 23)


@pytest.mark.parametrize(
    ("data", "trace_format", "line"),
    [
        (MOONCAKE + b'\n{"timestamp": 1, "input_length": }', "mooncake_jsonl", "line 41"),
        (MOONCAKE + b'\n\n{"timestamp": 1, "output_length": 3}', "mooncake_jsonl", "line 42"),
        (MOONCAKE.replace(b"3700", b"-3", 1), "mooncake_jsonl", "line 2"),
        (AZURE + b"\n2023-11-16 18:16:00.1,12", "azure_csv", "line 52"),
        (AZURE.replace(b"490", b"many", 1), "azure_csv", "line 3"),
        (AZURE.replace(b"2023-11-16 18:15:02", b"yesterday", 1), "azure_csv", "line 4"),
        (AZURE.replace(b"ContextTokens", b"Tokens", 1), "azure_csv", "line 1"),
        (MOONCAKE + b"\n\xff\xfe", "mooncake_jsonl", "line 41"),
    ],
)
def test_a_bad_line_of_a_trace_is_named(data: bytes, trace_format: str, line: str) -> None:
    with pytest.raises(WorkloadError, match=line):
        parse_trace(data, trace_format)


@pytest.mark.parametrize("trace_format", ["mooncake_jsonl", "azure_csv"])
def test_an_empty_trace_is_refused(trace_format: str) -> None:
    with pytest.raises(WorkloadError, match="no request"):
        parse_trace(b"", trace_format)


def test_a_trace_is_scaled_to_the_model_and_says_by_how_much() -> None:
    made = generator("trace")
    report = made.report()
    assert report["trace_rows"] == 40
    assert report["trace_slow_scale"] == pytest.approx(320 / 6000, rel=0.1)
    assert report["trace_time_scale"] > 0
    longest = max(len(r.prompt) + r.max_tokens for r in made.slow("s", 3).requests)
    assert longest <= 330


def test_equal_hash_ids_of_a_trace_are_equal_content_within_a_pair() -> None:
    first, second, *_ = generator("trace").slow("s", 0).requests
    assert first.prompt[:60] == second.prompt[:60]
    assert first.prompt != second.prompt
    assert generator("trace").slow("s", 1).requests[0].prompt[:60] != first.prompt[:60]


@pytest.fixture(scope="module")
def tokenizer() -> bytes:
    """A small real tokenizer, trained here: no model has to be at hand."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator(["the rays of light and the white rabbit"] * 4, trainer)
    return made.to_str().encode()


@pytest.fixture(scope="module")
def content(tokenizer: bytes, tmp_path_factory: pytest.TempPathFactory) -> TextContent:
    return text_content(tokenizer, tmp_path_factory.mktemp("tokens"))


def test_prompts_are_natural_text_that_differs_each_time(
    content: TextContent, tokenizer: bytes
) -> None:
    from tokenizers import Tokenizer, decoders

    reader = Tokenizer.from_str(tokenizer.decode())
    reader.decoder = decoders.ByteLevel()
    made = make_generator(Workload("single"), content, 2048)
    prompts = [made.fast("s", i).requests[0].prompt for i in range(300)]
    assert len(set(prompts)) == 300
    texts = [reader.decode(list(prompt)) for prompt in prompts]
    letters = sum(c.isalpha() or c in " ,.'\n" for text in texts for c in text)
    assert letters / sum(map(len, texts)) > 0.9


def test_token_ids_are_kept_by_the_digest_of_tokenizer_and_texts(
    tokenizer: bytes, tmp_path: Path
) -> None:
    text_content(tokenizer, tmp_path)
    (kept,) = tmp_path.iterdir()
    before = kept.stat().st_mtime_ns
    text_content(tokenizer, tmp_path)
    assert [p.stat().st_mtime_ns for p in tmp_path.iterdir()] == [before]


def test_a_broken_tokenizer_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="tokenizer can't be used") as caught:
        text_content(b'{"model": 3}', tmp_path)
    assert "\n" not in str(caught.value)


def test_the_shipped_texts_are_large_and_plain() -> None:
    folder = Path(__file__).parents[2] / "evaluator" / "workloads" / "corpus"
    for name in TEXTS:
        assert (folder / name).stat().st_size > 150_000
    assert "public domain" in (folder / "README.md").read_text()
