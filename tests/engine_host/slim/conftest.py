"""Prepared models, mapped once, and what transformers said of them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine_host.engines.slim import Engine, load_weights
from engine_host.engines.slim.weights import Weights
from engine_host.models import prepare

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FILES = {"smollm2": "smollm2", "seed:small": "seed-small", "seed:even": "seed-even"}


@dataclass(frozen=True)
class Case:
    prompt: list[int]
    tokens: list[int]


@dataclass(frozen=True)
class Subject:
    """A model under test: where it lies, its weights, its golden cases."""

    name: str
    folder: Path
    weights: Weights
    cases: list[Case]

    def engine(self, precision: str = "float32", **knobs: Any) -> Engine:
        return Engine(self.weights, knobs, precision)


@pytest.fixture(scope="session")
def subject_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Subject]:
    home = tmp_path_factory.mktemp("home")
    known: dict[str, Subject] = {}

    def subject(name: str) -> Subject:
        if name not in known:
            prepared = prepare(name, home)
            golden = json.loads((GOLDEN / f"{FILES[name]}.json").read_text(encoding="utf-8"))
            assert golden["digest"] == prepared.digest, "the model changed: make the goldens again"
            cases = [Case(case["prompt"], case["tokens"]) for case in golden["cases"]]
            weights = load_weights(str(prepared.folder))
            known[name] = Subject(name, prepared.folder, weights, cases)
        return known[name]

    return subject


@pytest.fixture(params=["smollm2", "seed:small"])
def subject(request: pytest.FixtureRequest, subject_of: Callable[[str], Subject]) -> Subject:
    """Every test that asks for it runs on both models."""
    return subject_of(request.param)


@pytest.fixture
def small(subject_of: Callable[[str], Subject]) -> Subject:
    """The quick model, for what doesn't depend on the weights."""
    return subject_of("seed:small")


@pytest.fixture(scope="session")
def run() -> Callable[..., dict[int, list[int]]]:
    """Submit requests and step until they are done: request id to tokens."""

    def run(engine: Engine, requests: list[dict[str, Any]]) -> dict[int, list[int]]:
        tokens: dict[int, list[int]] = {request["id"]: [] for request in requests}
        for request in requests:
            engine.submit(request)
        while engine.busy():
            for output in engine.step():
                tokens[output["id"]] += output["tokens"]
        return tokens

    return run


@pytest.fixture(scope="session")
def asked() -> Callable[..., list[dict[str, Any]]]:
    """Greedy requests for golden cases, by their place in the list."""

    def asked(cases: list[Case], max_tokens: int = 64, **more: Any) -> list[dict[str, Any]]:
        return [
            {"id": index, "prompt": case.prompt, "max_tokens": max_tokens, **more}
            for index, case in enumerate(cases)
        ]

    return asked
