"""The README of an export: what it is, how to use it, verify it and undo it."""

import shlex
from typing import Any

from protos.release import Release
from services.export.carried import source
from services.export.steps import Step, measured
from services.report.record import FINAL, CampaignRecord

_NO_FILES = "No file of vLLM is changed: the flags and the environment are all of it."
_UNDO = (
    "Leave `overlay/` off `PYTHONPATH` (start vLLM without `serve.sh`); "
    "after `apply.py apply`: `python apply.py undo`."
)
_NAMES = """
`names/` is there because the package is called `{package}`, and the command `vllm` looks for its
version under the name `vllm`.
"""

_LIBRARIES = """
`lib/` was built by gcc for the processor of the machine that tuned it. For another one, build it
again in `tree/`:

{commands}
"""


def vllm(
    record: CampaignRecord, release: Release, made: list[Step], facts: dict[str, Any], command: str
) -> bytes:
    """For a release of vLLM."""
    known = {name: facts[name] for name in ("package", "version")}
    left_out = "".join(f"* {line}\n" for line in facts["left_out"])
    text = source("vllm_readme.txt").format(
        **_common(record, release, made),
        **known,
        left_out=f"\nNot in this export:\n{left_out}" if left_out else "",
        command=command.replace("\n", "\n    "),
        how=(source("by_path_readme.txt").format(**known) if facts["files"] else _NO_FILES + "\n")
        + (_NAMES.format(**known) if facts["package"] != "vllm" else ""),
        undo=_UNDO if facts["files"] else "Start vLLM without `serve.sh`.",
    )
    return text.encode()


def tree(
    record: CampaignRecord, release: Release, made: list[Step], facts: dict[str, Any]
) -> bytes:
    """For a release of an engine that comes as a whole."""
    builds = [
        f"    gcc -shared -fPIC {shlex.join(build['sources'])} {shlex.join(build['flags'])} "
        f"-o ../lib/lib{build['name']}.so"
        for build in facts["builds"]
    ]
    text = source("tree_readme.txt").format(
        **_common(record, release, made),
        engine=facts["engine"],
        libraries=_LIBRARIES.format(commands="\n".join(builds)) if builds else "",
    )
    return text.encode()


def _common(record: CampaignRecord, release: Release, made: list[Step]) -> dict[str, str]:
    assert record.opening is not None
    target, objective = record.opening.target, record.opening.objective
    return {
        "release": release.id,
        "campaign": record.campaign,
        "goal": f"{objective.metric} on the workload `{record.opening.workload.name}` "
        f"({target.model}, {target.precision}, {target.device_class})",
        "model": f"`{target.model}`",
        "gain": _gain(record, release),
        "winners": "".join(_winner(number, step) for number, step in enumerate(made, 1)),
    }


def _gain(record: CampaignRecord, release: Release) -> str:
    """Release against start, if that was measured for this very release."""
    final = record.closing(FINAL)
    if (
        final
        and final.verdict
        and final.verdict.interval
        and final.lease.side_b.release == release.id
    ):
        return (
            f"Measured against the start, cold starts in turns: {measured(final.verdict.interval)}."
        )
    return "What it gains over the start as a whole was not measured; single steps are below."


def _winner(number: int, step: Step) -> str:
    lines = [f"{number}. {step.header[0]}"]
    lines += [f"   {' '.join(line.split())}" for line in step.header[1:]]
    lines += [f"   knob {name} = {value}" for name, value in step.knobs.items()]
    return "  \n".join(lines) + "\n"
