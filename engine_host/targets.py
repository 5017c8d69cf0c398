"""From a target to what its engines start from: the model on disk, the start release, the facts."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine_host import memory, vllm_tree
from engine_host.errors import HostError
from engine_host.residency import Model, Residency
from engine_host.trees import start_files
from engine_host.zygotes import KINDS
from protos.candidate import Scalar
from protos.release import EngineFacts, Release
from protos.target import Target
from protos.trial import Limits, Side
from services.blobs import Blobs

FAKE_MODEL = "fake"
_FACT_TYPES = (int, float, str, type(None))


@dataclass(frozen=True)
class Prepared:
    """A target that can be tuned: `facts` and `start` are what `campaign_ready` says."""

    model: Model
    start: Release
    start_side: Side
    facts: EngineFacts

    def with_space(self, residency: Residency) -> Prepared:
        """Ask a trial of the start release for its declared search space."""
        process = residency.candidate(self.start_side, "hot", Limits())
        try:
            space = process.ask("space", "start", Limits().start_s)
        finally:
            process.end()
        return replace(self, facts=_replaced(self.facts, json.dumps(space)))


def _replaced(facts: EngineFacts, space: str) -> EngineFacts:
    return EngineFacts(
        facts.engine,
        facts.device_class,
        facts.files,
        space,
        facts.tokenizer,
        facts.model,
        facts.bytes_per_pass,
        facts.bandwidth_bytes_s,
        facts.version,
    )


def side_of(release: Release) -> Side:
    """A release as one side of a trial."""
    return Side(release.id, release.files, release.knobs, release.libraries)


def prepare_target(
    target: Target,
    campaign: str,
    home: Path,
    blobs: Blobs,
    knobs: Mapping[str, Scalar] | None = None,
) -> Prepared:
    """Prepare the model and put the start release into blobs. Raises HostError in one line.

    `knobs` are the start release's own, where they aren't the engine's defaults.
    """
    if target.engine not in KINDS:
        raise HostError(f"unknown engine {target.engine!r}: use one of {', '.join(KINDS)}")
    model, tokenizer = _prepare_model(target, home, blobs)
    files = start_files(target.engine, blobs)
    version = None
    if target.engine == "vllm":
        files |= vllm_tree.overlay(blobs)
        version = vllm_tree.version()
    start = Release(campaign, 0, files, dict(knobs or {}))
    per_pass = model.facts.get("bytes_per_pass")
    facts = EngineFacts(
        engine=target.engine,
        device_class=target.device_class,
        files=files,
        space="",
        tokenizer=tokenizer,
        model={k: v for k, v in model.facts.items() if isinstance(v, _FACT_TYPES)},
        bytes_per_pass=int(per_pass) if per_pass is not None else None,
        version=version,
    )
    return Prepared(model, start, side_of(start), facts)


def _prepare_model(target: Target, home: Path, blobs: Blobs) -> tuple[Model, str | None]:
    if target.engine == "fake":
        return _fake_model(target.model, home), None
    own_bytes = KINDS[target.engine].memory_bytes
    memory.require(target.model, Path(target.model).expanduser(), own_bytes)
    answer = _run_preparation(target.model, home)
    folder = Path(answer["folder"])
    memory.require(target.model, folder, own_bytes)
    tokenizer = folder / "tokenizer.json"
    digest = blobs.put(tokenizer.read_bytes()) if tokenizer.is_file() else None
    return Model(folder, answer["facts"], target.precision), digest


def _run_preparation(model: str, home: Path) -> dict[str, Any]:
    """Converting a model takes memory that a control process must not keep: a child does it."""
    command = [sys.executable, "-m", "engine_host.models", "prepare", model, "--verify"]
    command += ["--home", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise HostError(lines[-1].removeprefix("error: "))
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def _fake_model(name: str, home: Path) -> Model:
    """Weights of the fake engine: bytes that follow from the model's name."""
    folder = home / "models" / f"fake-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    if not (folder / "SHA256SUMS").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        seed = hashlib.sha256(name.encode()).digest()
        content = b"".join(hashlib.sha256(seed + bytes([i])).digest() for i in range(128))
        (folder / "weights.bin").write_bytes(content)
        sums = f"{hashlib.sha256(content).hexdigest()}  weights.bin\n"
        making = folder / ".sums"
        making.write_text(sums, encoding="utf-8")
        os.replace(making, folder / "SHA256SUMS")
    facts: dict[str, Any] = {"name": name, "vocab": 512, "max_context": 4096}
    return Model(folder, facts)
