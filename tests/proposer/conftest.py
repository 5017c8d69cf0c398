"""A campaign on the real slim tree, as strategies see it."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.playbook_trees import start_sources
from engine_host.engines.slim.space import SPACE
from proposer.strategies import Context
from protos.ids import digest_bytes
from protos.release import EngineFacts, Release
from protos.target import Objective, Target, Workload

CAMPAIGN = "k1"


@pytest.fixture(scope="session")
def slim() -> dict[str, str]:
    """The start tree of the slim engine: path to text."""
    return start_sources()


@pytest.fixture
def facts(slim: dict[str, str]) -> EngineFacts:
    files = {path: digest_bytes(text.encode()) for path, text in slim.items()}
    return EngineFacts("slim", "cpu", files, json.dumps(SPACE), None)


@pytest.fixture
def start(facts: EngineFacts) -> Release:
    return Release(CAMPAIGN, 0, facts.files)


@pytest.fixture
def context(slim: dict[str, str], facts: EngineFacts, start: Release) -> Callable[..., Context]:
    """The context of a fresh campaign, with what a test wants otherwise."""

    def made(**changes: Any) -> Context:
        fresh = Context(
            campaign=CAMPAIGN,
            target=Target("slim", "smollm2"),
            workload=Workload("single"),
            objective=Objective("output_tok_s"),
            facts=facts,
            base=start,
            start=start,
            sources=slim,
            space=SPACE,
        )
        return replace(fresh, **changes)

    return made
