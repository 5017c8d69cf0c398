"""The engine protocol of docs/ENGINE.md, on the fake engine and on a real one."""

import importlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine_host.environments import environment
from engine_host.targets import prepare_target
from engine_host.trees import ENGINES_FOLDER
from engine_host.zygotes import KINDS
from engine_server import EngineServer
from protos.target import Target
from services.blobs import MemoryBlobs

MODELS = {"fake": "anything", "slim": "seed:small", "vllm": "smollm2"}
ENGINES = ["fake", "slim", pytest.param("vllm", marks=pytest.mark.vllm)]
KNOB_KEYS = {"name", "kind", "default", "rung", "output_class", "help"}


@dataclass
class Subject:
    package: ModuleType | EngineServer
    weights: Any
    vocab: int
    usual: dict[str, Any] = field(default_factory=dict)  # knobs of every engine

    def engine(self, knobs: dict[str, Any] | None = None, precision: str = "float32") -> Any:
        return self.package.Engine(self.weights, {**self.usual, **(knobs or {})}, precision)


@pytest.fixture(scope="module", params=ENGINES)
def subject(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Subject]:
    home: Path = tmp_path_factory.mktemp("home")
    target = Target(request.param, MODELS[request.param])
    prepared = prepare_target(target, "campaign", home, MemoryBlobs())
    folder, vocab = str(prepared.model.folder), prepared.model.vocab
    if request.param != "vllm":
        package = importlib.import_module(f"engine_host.engines.{request.param}")
        yield Subject(package, package.load_weights(folder), vocab)
        return
    server = serve_vllm()
    yield Subject(server, folder, vocab, {"mode": "eager"})  # compiling takes a minute
    server.close()


def serve_vllm() -> EngineServer:
    """vLLM's engine is driven in its own environment: nothing of it can be imported here."""
    own, kind = environment("vllm"), KINDS["vllm"]
    variables = {"PATH": "/usr/bin:/bin", "TMPDIR": tempfile.gettempdir(), **own.variables({})}
    root = ENGINES_FOLDER / "vllm"
    return EngineServer(own.python, root, kind.package, kind.imports, variables)


def request_of(number: int, length: int = 6, tokens: int = 5, **more: Any) -> dict[str, Any]:
    prompt = [(7 * number + 3 * i) % 200 + 1 for i in range(length)]
    return {"id": number, "prompt": prompt, "max_tokens": tokens, **more}


def serve(engine: Any, *requests: dict[str, Any]) -> dict[int, list[dict[str, Any]]]:
    """Submit all, step until done: request id to its outputs in order."""
    outputs: dict[int, list[dict[str, Any]]] = {r["id"]: [] for r in requests}
    for request in requests:
        engine.submit(request)
    while engine.busy():
        for output in engine.step():
            outputs.setdefault(output["id"], []).append(output)
    return outputs


def tokens_of(outputs: list[dict[str, Any]]) -> list[int]:
    return [token for output in outputs for token in output["tokens"]]


def test_the_search_space_is_plain_data(subject: Subject):
    space = json.loads(json.dumps(subject.package.SPACE))
    assert space
    assert all(knob.keys() >= KNOB_KEYS for knob in space)
    assert all(knob["rung"] in ("live", "init", "process") for knob in space)
    assert len({knob["name"] for knob in space}) == len(space)


def test_a_request_gets_exactly_its_tokens_and_one_finish(subject: Subject):
    outputs = serve(subject.engine(), request_of(1))[1]
    assert len(tokens_of(outputs)) == 5
    assert [o["finish"] for o in outputs if o["finish"]] == ["length"]
    assert outputs[-1]["finish"] == "length"
    assert all(0 <= token < subject.vocab for token in tokens_of(outputs))


def test_outputs_can_be_written_as_json(subject: Subject):
    assert json.loads(json.dumps(serve(subject.engine(), request_of(1))))


def test_greedy_tokens_are_the_same_again_and_in_another_engine(subject: Subject):
    engine = subject.engine()
    first, second = (tokens_of(serve(engine, request_of(1))[1]) for _ in range(2))
    assert first == second == tokens_of(serve(subject.engine(), request_of(1))[1])


def test_a_batch_gives_each_request_what_it_gets_alone(subject: Subject):
    requests = [request_of(n, length=4 + n, tokens=3 + n) for n in range(1, 5)]
    together = serve(subject.engine(), *requests)
    for request in requests:
        alone = serve(subject.engine(), request)[request["id"]]
        assert tokens_of(together[request["id"]]) == tokens_of(alone)


def test_a_request_may_come_while_others_run(subject: Subject):
    engine = subject.engine()
    engine.submit(request_of(1, tokens=6))
    engine.step()
    late = serve(engine, request_of(2))[2]
    assert len(tokens_of(late)) == 5


def test_an_engine_is_busy_until_its_last_output(subject: Subject):
    engine = subject.engine()
    assert not engine.busy()
    engine.submit(request_of(1))
    assert engine.busy()
    while engine.busy():
        engine.step()
    assert engine.step() == []


def test_a_busy_engine_refuses_to_reset_and_an_idle_one_gives_the_same_tokens_after(
    subject: Subject,
):
    engine = subject.engine()
    before = tokens_of(serve(engine, request_of(1))[1])
    engine.submit(request_of(2))
    with pytest.raises(ValueError, match="reset"):
        engine.reset()
    while engine.busy():
        engine.step()
    engine.reset()
    assert tokens_of(serve(engine, request_of(1))[1]) == before


@pytest.mark.parametrize(
    "broken",
    [{"prompt": []}, {"prompt": [-1]}, {"prompt": [10**9]}, {"max_tokens": 0}],
    ids=["no prompt", "negative token", "no such token", "no output"],
)
def test_a_request_that_cannot_be_served_is_refused_in_one_line(subject: Subject, broken: Any):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        subject.engine().submit({**request_of(1), **broken})


def test_a_knob_that_does_not_exist_is_refused_in_one_line(subject: Subject):
    with pytest.raises(ValueError, match=r"^[^\n]*no_such_knob[^\n]*$"):
        subject.engine({"no_such_knob": 1})
    with pytest.raises(ValueError, match=r"^[^\n]*no_such_knob[^\n]*$"):
        subject.engine().set_knobs({"no_such_knob": 1})


def test_live_knobs_are_taken_by_a_running_engine_and_others_refused(subject: Subject):
    engine = subject.engine()
    for knob in subject.package.SPACE:
        if knob["rung"] == "live":
            engine.set_knobs({knob["name"]: knob["default"]})
        else:
            with pytest.raises(ValueError, match=knob["name"]):
                engine.set_knobs({knob["name"]: knob["default"]})


def test_every_knob_at_its_default_is_the_engine_without_knobs(subject: Subject):
    defaults = {knob["name"]: knob["default"] for knob in subject.package.SPACE} | subject.usual
    with_knobs, without = subject.engine(defaults), subject.engine()
    assert serve(with_knobs, request_of(1)) == serve(without, request_of(1))


def test_scoring_an_engines_own_greedy_output_finds_no_gap(subject: Subject):
    engine = subject.engine()
    request = request_of(1)
    output = tokens_of(serve(engine, request)[1])
    (score,) = engine.score([{"prompt": request["prompt"], "output": output}])
    assert score["top"] == output
    assert max(score["gaps"]) < 1e-3
    assert len(score["logprobs"]) == len(output)
    assert max(score["logprobs"]) <= 0.0


def test_scoring_another_output_finds_a_gap_and_leaves_the_engine_as_it_was(subject: Subject):
    engine = subject.engine()
    request = request_of(1)
    output = tokens_of(serve(engine, request)[1])
    other = [(token + 1) % subject.vocab for token in output]
    (score,) = engine.score([{"prompt": request["prompt"], "output": other}])
    assert max(score["gaps"]) > 0.0
    assert tokens_of(serve(engine, request)[1]) == output


def test_counters_count(subject: Subject):
    engine = subject.engine()
    before = engine.counters()
    serve(engine, request_of(1))
    after = engine.counters()
    assert after["prompt_tokens"] - before["prompt_tokens"] == 6
    assert after["output_tokens"] - before["output_tokens"] == 5
    assert after["steps"] > before["steps"]
    assert all(type(value) is int for value in after.values())


def test_log_probabilities_come_when_asked_for(subject: Subject):
    outputs = serve(subject.engine(), request_of(1, logprobs=True))[1]
    values = [value for output in outputs for value in output["logprobs"]]
    assert len(values) == 5
    assert max(values) <= 0.0
    assert all(o["logprobs"] is None for o in serve(subject.engine(), request_of(2))[2])
