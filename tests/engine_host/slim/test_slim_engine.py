"""The engine protocol: what is refused, what knobs do, how little an engine holds."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import engine_host.engines.slim
from engine_host.engines.slim import SPACE, Engine, native

TREE_ROOT = Path(engine_host.engines.slim.__file__).parents[1]


def child(code, *arguments):
    """Run code in an interpreter whose path holds the tree's root and nothing else of ours."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[0] = {str(TREE_ROOT)!r}\n{code}", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        cwd="/",
    )


def test_the_space_is_read_without_torch():
    code = "import json, slim; print(json.dumps(['torch' in sys.modules, slim.SPACE]))"
    done = child(code)
    torch_loaded, space = json.loads(done.stdout)
    assert not torch_loaded
    assert space == [dict(knob) for knob in SPACE]


def test_the_tree_serves_alone(small):
    code = (
        "import slim\nengine = slim.Engine(slim.load_weights(sys.argv[1]), {})\n"
        "engine.submit({'id': 1, 'prompt': [5, 6], 'max_tokens': 2})\n"
        "print(len(engine.step()), [n for n in sys.modules if n.startswith('engine_host')])"
    )
    done = child(code, str(small.folder))
    assert done.stdout == "1 []\n", done.stderr


def test_nothing_can_write_to_the_weights(small):
    code = (
        "import slim\nweights = slim.load_weights(sys.argv[1])\nprint('mapped', flush=True)\n"
        "weights.tensors['model.norm.weight'].zero_()\nprint('written')"
    )
    done = child(code, str(small.folder))
    assert done.stdout == "mapped\n"
    assert done.returncode < 0  # ended by a signal


def test_an_engine_copies_no_weights(small):
    model = small.engine("bfloat16").model
    mapped = small.weights.tensors
    assert model.output.data_ptr() == mapped["lm_head.weight"].data_ptr()
    for index, layer in enumerate(model.layers):
        name = f"model.layers.{index}.self_attn.q_proj.weight"
        assert layer.q.data_ptr() == mapped[name].data_ptr()


def test_tied_embeddings_are_the_output_layer(subject_of):
    model = subject_of("smollm2").engine("bfloat16").model
    assert model.output is model.embedding


def test_every_knob_is_declared_in_full():
    for knob in SPACE:
        assert set(knob) == {
            *("name", "kind", "low", "high", "choices", "log"),
            *("default", "rung", "output_class", "help"),
        }
        assert knob["rung"] in ("live", "init", "process")
        assert knob["output_class"] in ("bitwise", "equivalent", "quality")
        if knob["kind"] == "int":
            assert knob["low"] <= knob["default"] <= knob["high"]


def test_both_ends_of_every_knob_serve(small, run, asked):
    case = small.cases[0]
    for knob in SPACE:
        ends = [knob["low"], knob["high"]] if knob["kind"] == "int" else knob["choices"]
        for value in ends:
            engine = small.engine(**{knob["name"]: value})
            assert run(engine, asked([case], 4)) == {0: case.tokens[:4]}


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"speed": 9}, "unknown knob 'speed'"),
        ({"prefill_chunk": 0}, "knob 'prefill_chunk' is 16 to 4096, not 0"),
        ({"prefill_chunk": 64.0}, "knob 'prefill_chunk' is a whole number, not 64.0"),
        ({"max_num_seqs": True}, "knob 'max_num_seqs' is a whole number, not True"),
        ({"prefix_caching": 1}, "knob 'prefix_caching' is true or false, not 1"),
    ],
)
def test_a_bad_knob_is_named_with_its_value(knobs, message, small):
    with pytest.raises(ValueError, match=message):
        small.engine(**knobs)


def test_only_live_knobs_change_while_running(small):
    engine = small.engine()
    with pytest.raises(ValueError, match="knob 'block_size' needs a new engine"):
        engine.set_knobs({"max_num_seqs": 3, "block_size": 32})
    assert engine.scheduler.max_num_seqs == 32
    engine.set_knobs({"max_num_seqs": 3, "threads": 1})
    assert engine.scheduler.max_num_seqs == 3
    assert torch.get_num_threads() == 1
    engine.set_knobs({"threads": 2})


def test_no_more_sequences_run_than_the_knob_says(small, asked):
    engine = small.engine(max_num_seqs=2)
    for request in asked(small.cases[:5], 4):
        engine.submit(request)
    while engine.busy():
        assert len(engine.step()) <= 4
        assert len(engine.scheduler.running) <= 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": [512]}, "a token outside 0 to 511"),
        ({"prompt": [-1]}, "a token outside 0 to 511"),
        ({"max_tokens": 0}, "max_tokens is at least 1, not 0"),
        ({"max_tokens": 5000}, "exceed the 4096 that fit"),
        ({"temperature": -1.0}, "temperature is 0 or more"),
        ({"temperature": float("nan")}, "temperature is 0 or more"),
        ({"top_p": 0.0}, "top_p is more than 0"),
        ({"stop": ["x"]}, "unknown key 'stop'"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(change, message, small):
    engine = small.engine()
    with pytest.raises(ValueError, match=message):
        engine.submit({"id": 1, "prompt": [5], "max_tokens": 2, **change})
    assert not engine.busy()


def test_an_id_in_use_is_refused_and_free_again_afterwards(small, run):
    engine = small.engine()
    request = {"id": 1, "prompt": [5], "max_tokens": 2}
    engine.submit(request)
    with pytest.raises(ValueError, match="request 1 is already being served"):
        engine.submit(request)
    while engine.busy():
        engine.step()
    assert len(run(engine, [request])[1]) == 2


def test_a_busy_engine_is_not_reset(small):
    engine = small.engine()
    engine.submit({"id": 1, "prompt": [5], "max_tokens": 2})
    with pytest.raises(ValueError, match="unfinished requests"):
        engine.reset()


def test_generation_stops_at_the_end_token_unless_told_to_ignore_it(small, run, asked):
    case = small.cases[0]
    ends_at = 5
    eos = case.tokens[ends_at]
    assert eos not in case.tokens[:ends_at]
    weights = replace(small.weights, config=replace(small.weights.config, eos_ids=(511, eos)))
    assert run(Engine(weights, {}, "float32"), asked([case])) == {0: case.tokens}
    engine = Engine(weights, {}, "float32")
    engine.submit(asked([case], ignore_eos=False)[0])
    outputs = []
    while engine.busy():
        outputs += engine.step()
    assert [output["tokens"][0] for output in outputs] == case.tokens[: ends_at + 1]
    assert [output["finish"] for output in outputs] == [None] * ends_at + ["stop"]


def test_a_native_library_is_found_by_its_name(monkeypatch):
    monkeypatch.setitem(native.PATHS, "math", "libm.so.6")
    native.library.cache_clear()
    assert native.library("math").abs(-3) == 3
    with pytest.raises(LookupError, match="no native library 'other'"):
        native.library("other")
    native.library.cache_clear()
