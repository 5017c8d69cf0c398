"""Everything that an export holds, by path in its folder."""

import json
from typing import Any

from protos.ids import digest_bytes
from protos.release import Release
from services.blobs import Blobs
from services.export import readme, scripts
from services.export.carried import source
from services.export.errors import ExportError
from services.export.overlay import ROOT, overlay, place
from services.export.patches import file_name, patch
from services.export.steps import Installed, Step, Trees, steps
from services.export.vllm_serve import Command, command
from services.report.record import CampaignRecord

NAMES = "names"  # tells Python's metadata that vLLM is there under its usual name
Files = dict[str, bytes]


def export_files(
    record: CampaignRecord, release: Release, blobs: Blobs, installed: Installed
) -> Files:
    """The files of a release's export. `installed` reads vLLM's own files where it is needed.

    Raises ExportError in one line, and BlobError for sources that are no longer here.
    """
    opening, ready = record.opening, record.ready
    if opening is None or ready is None:
        raise ExportError(f"campaign {record.campaign} has no start release: nothing was tuned yet")
    if release.id == ready.start.id:
        raise ExportError(f"{release.id} is the start itself: there is no change to export")
    trees = Trees(blobs, installed if ready.facts.engine == "vllm" else lambda path: None)
    prefix = "vllm/" if ready.facts.engine == "vllm" else ""
    made = steps(record, release, trees, prefix)
    facts = _facts(record, release, made)
    if ready.facts.engine == "vllm":
        return _vllm(record, release, made, facts)
    return _tree(record, release, made, facts, blobs)


def _facts(record: CampaignRecord, release: Release, made: list[Step]) -> dict[str, Any]:
    assert record.opening is not None
    target = record.opening.target
    return {
        "release": release.id,
        "campaign": record.campaign,
        "engine": target.engine,
        "model": target.model,
        "precision": target.precision,
        "device_class": target.device_class,
        "knobs": dict(sorted(release.knobs.items())),
        "winners": [step.title for step in made],
    }


def _patches(made: list[Step]) -> Files:
    """`patches/`, one for each winner that changes files, and `series`, their order."""
    changing = [step for step in made if step.changes_files]
    files = {
        f"patches/{file_name(number, step.title)}": patch(
            list(step.header), step.before, step.after
        )
        for number, step in enumerate(changing, 1)
    }
    if files:
        order = "".join(f"{path.removeprefix('patches/')}\n" for path in files)
        files["patches/series"] = order.encode()
    return files


def _vllm(
    record: CampaignRecord, release: Release, made: list[Step], facts: dict[str, Any]
) -> Files:
    assert record.ready is not None
    version = record.ready.facts.version
    if version is None:
        raise ExportError(f"campaign {record.campaign} did not record which vLLM it tuned")
    package, _, number = version.partition(" ")
    files, before, after = _patches(made), *_ends(made)
    changed = {path: after[path] for path in sorted(after) if after[path] != before[path]}
    facts |= {"package": package, "version": number, "files": []}
    path = []
    if changed:
        present = {name: content for name, content in changed.items() if content is not None}
        files |= overlay(present, number)
        files["apply.py"] = source("apply.py").encode()
        path.append(ROOT)
    for name, content in changed.items():
        facts["files"].append(_entry(name, before[name], content))
        if (original := before[name]) is not None:
            files[f"original/{name}"] = original
    names = []
    if package != "vllm":
        # The command `vllm` asks for its version under this name, whatever the package is called.
        about = f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}+cpu\n"
        files[f"{NAMES}/vllm-{number}+cpu.dist-info/METADATA"] = about.encode()
        names.append(NAMES)
    ours, start = _command(record, release), _command(record, record.ready.start)
    left_out = [*ours.left_out, *_without_a_form(record.ready.start, release)]
    facts["left_out"] = left_out
    files["serve.sh"] = scripts.serve(
        "serve.sh", f"Release {release.id} on stock vLLM {number}.", ours, [*path, *names]
    )
    files["serve-start.sh"] = scripts.serve(
        "serve-start.sh", "What the release was measured against.", start, names
    )
    files["verify.sh"] = scripts.verify(_concurrency(record), names)
    files["README.md"] = readme.vllm(
        record, release, made, facts, scripts.one_line(ours, [*path, *names])
    )
    return files | {"export.json": _json(facts)}


def _entry(path: str, before: bytes | None, after: bytes | None) -> dict[str, Any]:
    """What apply.py needs to know of one file: contents by digest, and where they are kept."""
    return {
        "path": path,
        "original": f"original/{path}" if before is not None else None,
        "original_sha256": digest_bytes(before) if before is not None else None,
        "changed": place(path) if after is not None else None,
        "changed_sha256": digest_bytes(after) if after is not None else None,
    }


def _ends(made: list[Step]) -> tuple[dict[str, bytes | None], dict[str, bytes | None]]:
    """Contents before the first step and after the last, of every path that any step changes."""
    before: dict[str, bytes | None] = {}
    after: dict[str, bytes | None] = {}
    for step in made:
        before = {**step.before, **before}
        after |= step.after
    return before, after


def _command(record: CampaignRecord, release: Release) -> Command:
    assert record.ready is not None
    facts = record.ready.facts
    space = json.loads(facts.space or "[]")
    # Without a count of its own vLLM takes the cores that the machine has; so does the space.
    knobs = {k["name"]: k["default"] for k in space if k["name"] != "threads"} | release.knobs
    context = facts.model.get("max_context")
    precision = record.opening.target.precision if record.opening else "auto"
    most = context if isinstance(context, int) else None
    return command(knobs, precision, most, facts.device_class.startswith("cpu"))


def _without_a_form(start: Release, release: Release) -> list[str]:
    """What a release changes that vLLM itself has no place for."""
    paths = {
        path
        for path in start.files.keys() | release.files.keys()
        if not path.startswith("vllm/") and start.files.get(path) != release.files.get(path)
    }
    lines = [f"{path}: not a file of vLLM, it is how Perpetune drives it" for path in sorted(paths)]
    return lines + [f"lib{name}.so: vLLM has no place for it" for name in sorted(release.libraries)]


def _concurrency(record: CampaignRecord) -> int:
    assert record.opening is not None
    workload = record.opening.workload
    return 1 if workload.name == "single" else int(workload.params.get("concurrency", 16))


def _tree(
    record: CampaignRecord,
    release: Release,
    made: list[Step],
    facts: dict[str, Any],
    blobs: Blobs,
) -> Files:
    assert record.ready is not None
    files = _patches(made)
    for folder, tree in (("tree", release), ("start", record.ready.start)):
        files |= {f"{folder}/{path}": blobs.get(digest) for path, digest in tree.files.items()}
    for name, digest in release.libraries.items():
        files[f"lib/lib{name}.so"] = blobs.get(digest)
    facts["start_knobs"] = dict(sorted(record.ready.start.knobs.items()))
    facts["libraries"] = sorted(release.libraries)
    facts["builds"] = [
        {"name": b.name, "sources": list(b.sources), "flags": list(b.flags)} for b in release.builds
    ]
    files["run.py"] = source("run.py").encode()
    files["README.md"] = readme.tree(record, release, made, facts)
    return files | {"export.json": _json(facts)}


def _json(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts, indent=2).encode() + b"\n"
