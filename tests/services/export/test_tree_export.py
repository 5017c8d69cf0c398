import subprocess
import sys
from pathlib import Path

import pytest

from services.export import ExportError, write_files

ENGINES = Path(__file__).parents[3] / "engine_host/engines"


@pytest.fixture
def fake():
    """The files of the engine `fake`."""
    folder = ENGINES / "fake"
    return {
        f"fake/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in folder.rglob("*.py")
    }


def test_an_exported_engine_runs_by_itself_and_so_does_its_start(campaign, winner, fake, tmp_path):
    tuned = campaign("fake", fake, {"rounds": 1})
    model = fake["fake/model.py"].replace(b"% VOCAB", b"% 7")
    prepare = b"def prepare(engine):\n    print('prepared')\n"
    tuned.promote(
        winner({"fake/model.py": model, "fake/prepare/one.py": prepare}, {}, "few tokens")
    )
    tuned.export(tmp_path / "out")
    weights = tmp_path / "model"
    weights.mkdir()
    (weights / "weights.bin").write_bytes(bytes(range(64)))

    said = [
        subprocess.run(
            [sys.executable, "-I", "run.py", weights, "--max-tokens", "9", *more],
            cwd=tmp_path / "out",
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for more in ([], ["--start"])
    ]

    assert said[0][0] == "prepared"
    assert max(map(int, said[0][1].split(","))) < 7
    assert max(map(int, said[1][0].split(","))) >= 7
    assert said[1][1].startswith("9 tokens in ")


@pytest.mark.parametrize("tool", [["git", "apply", "-"], ["patch", "-p1", "-s"]])
def test_the_series_makes_the_tree_from_the_start(campaign, winner, fake, tmp_path, tool):
    tuned = campaign("fake", fake)
    tuned.promote(winner({"fake/csrc/step.c": b"int a;\n", "fake/native.py": None}, {}, "C"))
    tuned.promote(winner({"fake/model.py": fake["fake/model.py"] + b"\n# end"}, {}, "end"))
    out = tmp_path / "out"
    tuned.export(out)

    for name in (out / "patches/series").read_text().split():
        text = (out / "patches" / name).read_bytes()
        subprocess.run(tool, cwd=out / "start", input=text, check=True)

    assert contents(out / "start") == contents(out / "tree")


def test_the_start_is_no_change_to_export(campaign, fake, tmp_path):
    with pytest.raises(ExportError, match="is the start itself"):
        campaign("fake", fake).export(tmp_path / "out")


def test_only_an_empty_folder_is_written_to(tmp_path):
    (tmp_path / "file").write_text("mine")

    with pytest.raises(ExportError, match="is not empty"):
        write_files({"a": b""}, tmp_path)
    with pytest.raises(ExportError, match="is a file"):
        write_files({"a": b""}, tmp_path / "file")
    with pytest.raises(ExportError, match="would lie outside"):
        write_files({"../a": b""}, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".orig"
    }
