"""slim's greedy tokens in float32 are those of transformers, however the work is arranged."""

import pytest
from tokenizers import Tokenizer


@pytest.mark.parametrize("name", ["smollm2", "seed:small", "seed:even"])
def test_all_prompts_together_give_the_tokens_of_transformers(name, subject_of, run, asked):
    subject = subject_of(name)
    assert len(subject.cases) == 20
    assert {len(case.tokens) for case in subject.cases} == {64}
    made = run(subject.engine(), asked(subject.cases))
    assert made == {index: case.tokens for index, case in enumerate(subject.cases)}


@pytest.mark.parametrize("index", [0, 12, 17])
def test_a_prompt_alone_gives_the_tokens_of_transformers(index, subject, run, asked):
    case = subject.cases[index]
    assert run(subject.engine(), asked([case], 32)) == {0: case.tokens[:32]}


def test_a_prompt_in_small_chunks_gives_the_tokens_of_a_whole_one(subject, run, asked):
    cases = subject.cases[-2:]
    engine = subject.engine(prefill_chunk=48)
    made = run(engine, asked(cases, 8))
    assert made == {index: case.tokens[:8] for index, case in enumerate(cases)}
    assert engine.counters()["steps"] > len(cases[-1].prompt) // 48


def test_prompts_go_first_when_decoding_waits_for_them(subject, run, asked):
    engine = subject.engine(prefill_chunk=64, decode_while_prefilling=False)
    made = run(engine, asked(subject.cases[:6], 8))
    assert made == {index: case.tokens[:8] for index, case in enumerate(subject.cases[:6])}


def test_requests_that_arrive_while_others_run_change_nothing(small, run, asked):
    engine = small.engine()
    requests = asked(small.cases[:9], 16)
    tokens = {request["id"]: [] for request in requests}
    waiting = list(requests)
    while waiting or engine.busy():
        if waiting:
            engine.submit(waiting.pop(0))
        for output in engine.step():
            tokens[output["id"]] += output["tokens"]
    assert tokens == {index: case.tokens[:16] for index, case in enumerate(small.cases[:9])}


def test_torchs_own_matrix_products_give_the_same_tokens(small, run, asked):
    engine = small.engine(onednn_min_rows=64)
    made = run(engine, asked(small.cases[:4], 16))
    assert made == {index: case.tokens[:16] for index, case in enumerate(small.cases[:4])}


def test_other_block_sizes_give_the_same_tokens(small, run, asked):
    for block_size in (8, 128):
        engine = small.engine(block_size=block_size)
        made = run(engine, asked(small.cases[:4], 16))
        assert made == {index: case.tokens[:16] for index, case in enumerate(small.cases[:4])}


def test_the_default_model_knows_the_capital_of_france(subject_of, run):
    subject = subject_of("smollm2")
    tokenizer = Tokenizer.from_file(str(subject.folder / "tokenizer.json"))
    prompt = tokenizer.encode("The capital of France is").ids
    engine = subject.engine("bfloat16")
    tokens = run(engine, [{"id": 1, "prompt": prompt, "max_tokens": 8}])[1]
    assert "Paris" in tokenizer.decode(tokens)
