"""Compiled code is kept by the digest of all that can reach it, and given out as copies."""

import base64
import dataclasses
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from engine_host import compiled
from engine_host.child import compiled as in_child
from engine_host.loading import Tree
from engine_host.zygotes import KINDS

VLLM = KINDS["vllm"]
FILES = {"vllm/v1/core/sched/scheduler.py": "a", "vllm/model_executor/models/llama.py": "b"}
START = Tree(FILES, {"mode": "compiled"})


def archive(home: Path, tree: Tree, precision: str = "bfloat16") -> str:
    return compiled.archive(home, VLLM, tree, "model", precision)


@pytest.mark.parametrize(
    "tree",
    [
        Tree({**FILES, "vllm/v1/core/sched/scheduler.py": "x"}, START.knobs),
        Tree(FILES, {**START.knobs, "max_num_seqs": 2}),
        Tree(FILES, {**START.knobs, "prefix_caching": False}),
    ],
    ids=["serving loop", "live knob", "knob that no graph sees"],
)
def test_what_no_graph_holds_shares_the_archive(tmp_path: Path, tree: Tree):
    assert archive(tmp_path, tree) == archive(tmp_path, START)


@pytest.mark.parametrize(
    "tree",
    [
        Tree({**FILES, "vllm/model_executor/models/llama.py": "x"}, START.knobs),
        Tree({**FILES, "vllm/model_executor/new.py": "x"}, START.knobs),
        Tree(FILES, {"mode": "eager"}),
        Tree(FILES, {**START.knobs, "threads": 2}),
        Tree(FILES, START.knobs, {"fast": "x"}),
    ],
    ids=["model code", "another file", "mode", "threads", "library"],
)
def test_what_a_graph_may_hold_has_an_archive_of_its_own(tmp_path: Path, tree: Tree):
    assert archive(tmp_path, tree) != archive(tmp_path, START)
    assert archive(tmp_path, START, "float32") != archive(tmp_path, START)


def test_an_engine_that_compiles_nothing_has_no_archive(tmp_path: Path):
    assert compiled.archive(tmp_path, KINDS["slim"], START, "model", "bfloat16") == ""
    assert not (tmp_path / "compiled").exists()


def test_a_folder_comes_back_as_it_was(tmp_path: Path):
    made = tmp_path / "made"
    (made / "inner").mkdir(parents=True)
    (made / "inner" / "graph").write_bytes(b"code")
    packed = tmp_path / "archive"
    packed.write_bytes(in_child.pack(str(made)))
    assert in_child.restore(str(packed), str(tmp_path / "back"))
    assert (tmp_path / "back" / "inner" / "graph").read_bytes() == b"code"


def test_where_there_is_nothing_nothing_is_packed_or_restored(tmp_path: Path):
    assert in_child.pack(str(tmp_path / "none")) == b""
    assert not in_child.restore(str(tmp_path / "none"), str(tmp_path / "back"))
    assert not in_child.restore("", str(tmp_path / "back"))


def test_an_archive_cannot_write_outside_its_folder(tmp_path: Path):
    packed = tmp_path / "archive"
    with tarfile.open(packed, "w:gz") as file:
        entry = tarfile.TarInfo("../outside")
        entry.size = 4
        file.addfile(entry, io.BytesIO(b"evil"))
    with pytest.raises(tarfile.FilterError):
        in_child.restore(str(packed), str(tmp_path / "back"))
    assert not (tmp_path / "outside").exists()


@dataclasses.dataclass
class Answering:
    """A process that answers with what it compiled."""

    answer: Any
    asked: int = 0

    def ask(self, op: str, phase: str, limit_s: float) -> Any:
        self.asked += 1
        return self.answer


def test_the_first_archive_of_a_digest_stays(tmp_path: Path):
    where = tmp_path / "archive"
    first, second = (Answering(base64.b64encode(text).decode()) for text in (b"1", b"2"))
    for process in (first, second):
        compiled.keep(process, str(where), 1.0)  # type: ignore[arg-type]
    assert where.read_bytes() == b"1"
    assert second.asked == 0


@pytest.mark.parametrize("answer", [None, "", "no base64!", 7])
def test_a_process_that_gives_no_archive_leaves_none(tmp_path: Path, answer: Any):
    where = tmp_path / "archive"
    compiled.keep(Answering(answer), str(where), 1.0)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
