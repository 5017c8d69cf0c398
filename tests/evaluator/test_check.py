"""Checking candidates without running them: each bad one is refused in one line that helps."""

import json
import subprocess
import sys

import pytest

from evaluator.check import Checked, CheckRefused, check
from protos.candidate import MAX_SOURCE_BYTES, Build, Candidate
from protos.release import Release
from services.blobs import MemoryBlobs

MODEL = '''"""A model."""

import torch

SCALE = 2


class Model:
    """Its layers."""

    layers = 3

    def __init__(self, weights):
        self.weights = self.pack(weights)

    def pack(self, weights):
        return weights

    def decode(self, batch):
        return batch + SCALE

    @torch.no_grad()
    def prefill(self, batch, size=4):
        return batch * size


def rotary(x):
    return x


def load_weights(folder):
    return read(folder)


def read(folder):
    return folder
'''
SCHEDULER = "class Scheduler:\n    def plan(self):\n        return []\n"
SPACE = json.dumps(
    [
        {"name": "threads", "kind": "int", "low": 1, "high": 8, "default": 2, "rung": "live"},
        {"name": "block", "kind": "choice", "choices": [16, 32], "default": 16, "rung": "init"},
        {"name": "pool", "kind": "bool", "default": False, "rung": "process"},
        {"name": "share", "kind": "float", "low": 0.1, "high": 0.9, "default": 0.5, "rung": "live"},
    ]
)
KERNEL = "float twice(float x) { return 2 * x; }\n"


class Bench:
    """A base release in a blob store, and candidates on it."""

    def __init__(self, **more: str) -> None:
        self.blobs = MemoryBlobs()
        files = {"slim/model.py": MODEL, "slim/scheduler.py": SCHEDULER, "slim/__init__.py": ""}
        files |= {"slim/prepare/__init__.py": ""} | more
        self.base = Release("k", 0, {path: self.put(text) for path, text in files.items()})

    def put(self, content: str | bytes) -> str:
        return self.blobs.put(content.encode() if isinstance(content, str) else content)

    def check(
        self,
        files: dict[str, str | bytes | None] | None = None,
        base: Release | None = None,
        **fields: object,
    ) -> Checked:
        digests = {p: None if c is None else self.put(c) for p, c in (files or {}).items()}
        release = base or self.base
        candidate = Candidate("k", release.id, digests, **fields)  # type: ignore[arg-type]
        return check(candidate, release, SPACE, self.blobs)

    def refusal(self, files: dict[str, str | bytes | None] | None = None, **fields: object) -> str:
        with pytest.raises(CheckRefused) as caught:
            self.check(files, **fields)
        message = str(caught.value)
        assert "\n" not in message
        return message


def edited(old: str, new: str) -> dict[str, str | bytes | None]:
    assert old in MODEL
    return {"slim/model.py": MODEL.replace(old, new)}


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("../model.py", "'..'"),
        ("slim/../../etc/x.py", "'..'"),
        ("/slim/model.py", "absolute"),
        ("C:/model.py", "absolute"),
        ("slim\\model.py", "backslash"),
        ("slim//model.py", "empty parts"),
        ("other/model.py", "begin with slim/"),
        ("model.py", "outside the engine"),
        ("slim/weights.bin", "only .py, .c, .h"),
        ("slim/model.pyc", "only .py, .c, .h"),
        ("slim/my-file.py", "letters, digits"),
        (f"slim/{'x' * 300}.py", "200 at most"),
    ],
)
def test_a_bad_path_is_refused(path: str, says: str) -> None:
    assert says in Bench().refusal({path: "x = 1\n"})


def test_windows_line_ends_are_refused_with_their_line() -> None:
    message = Bench().refusal({"slim/new.py": "x = 1\ny = 2\r\nz = 3\r\n"})
    assert "slim/new.py:2" in message
    assert "convert it to LF" in message


def test_a_stale_base_is_refused() -> None:
    bench = Bench()
    candidate = Candidate("k", "r000000000000", knobs={"threads": 3})
    with pytest.raises(CheckRefused, match="current release"):
        check(candidate, bench.base, SPACE, bench.blobs)


def test_a_link_in_place_of_a_file_is_refused() -> None:
    bench = Bench()
    candidate = Candidate("k", bench.base.id, {"slim/new.py": "link:/etc/passwd"})
    with pytest.raises(CheckRefused, match="links are not followed"):
        check(candidate, bench.base, SPACE, bench.blobs)


def test_a_file_that_was_not_stored_is_refused() -> None:
    bench = Bench()
    candidate = Candidate("k", bench.base.id, {"slim/new.py": "a" * 64})
    with pytest.raises(CheckRefused, match="store the file first"):
        check(candidate, bench.base, SPACE, bench.blobs)


@pytest.mark.parametrize("content", [b"x = 1\0", b"\x7fELF\x02\x01", b"PK\x03\x04abc"])
def test_a_binary_file_is_refused(content: bytes) -> None:
    assert "binary" in Bench().refusal({"slim/new.py": content})


def test_text_that_is_not_utf8_is_refused_with_its_line() -> None:
    assert "slim/new.py:2: not UTF-8" in Bench().refusal({"slim/new.py": b"x = 1\n# caf\xe9\n"})


def test_five_megabytes_of_source_are_refused() -> None:
    message = Bench().refusal({"slim/new.py": "x = 1\n" * 900_000})
    assert str(MAX_SOURCE_BYTES) in message


def test_too_many_files_are_refused() -> None:
    many: dict[str, str | bytes | None] = {f"slim/f{i}.py": f"x = {i}\n" for i in range(65)}
    assert "64 are allowed" in Bench().refusal(many)


def test_a_syntax_error_is_refused_with_file_and_line() -> None:
    assert "slim/new.py:2:" in Bench().refusal({"slim/new.py": "x = 1\ndef f(:\n"})


def test_an_error_that_only_compiling_finds_is_refused_too() -> None:
    assert "slim/new.py:1" in Bench().refusal({"slim/new.py": "return 5\n"})


@pytest.mark.parametrize("cookie", ["latin-1", "utf-7", "no-such-encoding"])
def test_a_declared_encoding_other_than_utf8_is_refused(cookie: str) -> None:
    message = Bench().refusal({"slim/new.py": f"# coding: {cookie}\nx = 1\n"})
    assert message.startswith("slim/new.py:")


def test_warnings_of_a_candidates_source_stay_its_own() -> None:
    assert Bench().check({"slim/new.py": "x = 1 is 1\n"})


def test_source_nested_too_deep_is_refused() -> None:
    assert "slim/new.py" in Bench().refusal({"slim/new.py": "x = " + "(" * 500 + ")" * 500})


def test_deleting_a_file_that_is_not_there_is_refused() -> None:
    assert "can't be deleted" in Bench().refusal({"slim/none.py": None})


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"speed": 3}, "unknown knob 'speed'"),
        ({"threads": 0}, "outside 1 to 8"),
        ({"threads": 2.5}, "must be int"),
        ({"threads": True}, "must be int"),
        ({"threads": "4"}, "must be int"),
        ({"block": 64}, "use one of 16, 32"),
        ({"pool": 1}, "must be bool"),
        ({"share": 2.0}, "outside 0.1 to 0.9"),
    ],
)
def test_a_bad_knob_is_refused(knobs: dict[str, object], says: str) -> None:
    assert says in Bench().refusal(knobs=knobs)


@pytest.mark.parametrize(
    ("files", "knobs"),
    [
        ({}, {}),
        ({}, {"threads": 2}),
        ({"slim/model.py": MODEL}, {}),
        ({"slim/model.py": MODEL.replace("Its layers.", "Layers!") + "\n# a comment\n"}, {}),
    ],
)
def test_a_candidate_that_changes_nothing_is_refused(
    files: dict[str, str | bytes | None], knobs: dict[str, object]
) -> None:
    assert "changes nothing" in Bench().refusal(files, knobs=knobs)


@pytest.mark.parametrize(
    ("knobs", "rung"),
    [({"threads": 4}, "hot"), ({"block": 32}, "warm"), ({"threads": 4, "pool": True}, "cold")],
)
def test_a_knob_takes_the_rung_it_is_declared_with(knobs: dict[str, object], rung: str) -> None:
    scope = Bench().check(knobs=knobs).scope
    assert (scope.rung, scope.word, scope.changed) == (rung, "knob", ())


def test_a_changed_body_is_hot_and_can_be_proved_to_run() -> None:
    scope = Bench().check(edited("batch + SCALE", "SCALE + batch")).scope
    assert (scope.rung, scope.word) == ("hot", "model_function")
    assert scope.changed == ("slim/model.py:Model.decode",)


def test_a_change_of_the_scheduler_alone_is_a_scheduler_function() -> None:
    scope = Bench().check({"slim/scheduler.py": SCHEDULER.replace("[]", "[1]")}).scope
    assert (scope.rung, scope.word) == ("hot", "scheduler_function")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import torch\n", "import torch\nimport math\n"),
        ("SCALE = 2\n", "SCALE = 2\nOFFSET = 3\n"),
        ("def rotary(x):\n", "def helper():\n    return 1\n\n\ndef rotary(x):\n"),
        (
            "    def decode(self, batch)",
            "    def more(self):\n        pass\n\n    def decode(self, batch)",
        ),
        ("    def decode(self, batch)", "    def decode(self, batch, fast=True)"),
    ],
)
def test_additions_and_new_signatures_stay_hot(old: str, new: str) -> None:
    assert Bench().check(edited(old, new)).scope.rung == "hot"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SCALE = 2", "SCALE = 3"),
        ("    layers = 3", "    layers = 4"),
        ("@torch.no_grad()", "@torch.inference_mode()"),
        ("return batch * size", "return size * batch"),  # in a wrapper that hides it
        ("class Model:", "class Model(dict):"),
        ("def rotary(x):\n    return x\n", ""),
        ("import torch\n", ""),
        ("import torch\n", "import torch\nfrom math import *\n"),
        ("def rotary(x):", "def rotary(x, y=SCALE):"),
        ("def rotary(x):", "async def rotary(x):"),
        ("import torch\n", "import torch\n\ntorch.set_num_threads(1)\n"),
        ("def rotary(x):\n", "def SCALE():\n    return 1\n\n\ndef rotary(x):\n"),
    ],
)
def test_what_only_running_the_module_again_can_follow_is_module_level(old: str, new: str) -> None:
    scope = Bench().check(edited(old, new)).scope
    assert (scope.rung, scope.word) == ("warm", "module_level")


def test_a_body_that_ran_while_the_engine_was_built_is_warm() -> None:
    constructor = Bench().check(edited("self.pack(weights)", "weights")).scope
    helper = Bench().check(edited("        return weights\n", "        return [weights]\n")).scope
    assert (constructor.rung, helper.rung) == ("warm", "warm")
    assert constructor.changed == ()
    assert helper.changed == ("slim/model.py:Model.pack",)


OVERLAY = """class Core:
    def __init__(self):
        self.step()

    def step(self):
        return 1
"""


@pytest.mark.parametrize(
    ("old", "new", "rung"), [("return 1", "return 2", "hot"), ("self.step()", "pass", "warm")]
)
def test_a_file_laid_over_another_package_is_hot_but_for_its_constructors(
    old: str, new: str, rung: str
) -> None:
    bench = Bench(**{"big/core.py": OVERLAY})
    assert bench.check({"big/core.py": OVERLAY.replace(old, new)}).scope.rung == rung
    assert "begin with big/ or slim/" in bench.refusal({"other/core.py": OVERLAY})


def test_a_body_that_ran_while_the_weights_were_loaded_is_cold() -> None:
    scope = Bench().check(edited("    return folder\n", "    return str(folder)\n")).scope
    assert scope.rung == "cold"


def test_a_new_module_with_a_preparation_step_is_hot() -> None:
    files: dict[str, str | bytes | None] = {
        "slim/fused.py": "class Fused:\n    def __init__(self):\n        self.x = 1\n\n"
        "    def run(self):\n        return self.x\n",
        "slim/prepare/fuse.py": "from ..fused import Fused\n\n\ndef prepare(engine):\n"
        "    engine.fused = Fused()\n",
    }
    scope = Bench().check(files | edited("batch + SCALE", "batch.run()")).scope
    assert scope.rung == "hot"
    assert set(scope.changed) == {"slim/fused.py:Fused.run", "slim/model.py:Model.decode"}


def test_a_changed_preparation_step_of_the_base_is_warm() -> None:
    bench = Bench(**{"slim/prepare/fuse.py": "def prepare(engine):\n    engine.x = 1\n"})
    changed = "def prepare(engine):\n    engine.x = 2\n"
    assert bench.check({"slim/prepare/fuse.py": changed}).scope.rung == "warm"


def test_a_helper_of_a_preparation_step_of_the_base_is_warm() -> None:
    bench = Bench(
        **{
            "slim/prepare/fuse.py": "from ..fused import pack\n\n\ndef prepare(engine):\n"
            "    engine.packed = pack(engine)\n",
            "slim/fused.py": "def pack(engine):\n    return 1\n",
        }
    )
    changed = "def pack(engine):\n    return 2\n"
    assert bench.check({"slim/fused.py": changed}).scope.rung == "warm"


def test_a_preparation_step_before_one_that_has_run_is_warm() -> None:
    bench = Bench(**{"slim/prepare/s05.py": "def prepare(engine):\n    engine.x = 1\n"})
    step = "def prepare(engine):\n    engine.y = 2\n"
    assert bench.check({"slim/prepare/s04.py": step}).scope.rung == "warm"
    assert bench.check({"slim/prepare/s06.py": step}).scope.rung == "hot"


def test_a_name_that_only_looks_like_a_function_does_not_raise_the_rung() -> None:
    """`config.mlp` in a constructor is a number, not the function `mlp` of another module."""
    more = {
        "slim/layers.py": "def mlp(x):\n    return x\n",
        "slim/sizes.py": "class Sizes:\n    def __init__(self, config):\n"
        "        self.mlp = config.mlp\n",
    }
    changed: dict[str, str | bytes | None] = {"slim/layers.py": "def mlp(x):\n    return x + 0\n"}
    assert Bench(**more).check(changed).scope.rung == "hot"
    calling = {
        "slim/uses.py": "from . import layers\n\n\nclass U:\n    def __init__(self):\n"
        "        self.x = layers.mlp(1)\n"
    }
    assert Bench(**more, **calling).check(changed).scope.rung == "warm"


def test_a_removed_file_is_warm() -> None:
    assert Bench().check({"slim/scheduler.py": None}).scope.rung == "warm"


def test_a_closure_over_other_variables_is_warm() -> None:
    bench = Bench(**{"slim/c.py": "class C:\n    def f(self):\n        return 1\n"})
    changed = "class C:\n    def f(self):\n        return super().f()\n"
    assert bench.check({"slim/c.py": changed}).scope.rung == "warm"


def test_a_native_library_that_is_new_is_hot_and_one_that_is_loaded_is_warm() -> None:
    bench = Bench()
    build = Build("twice", ("slim/csrc/twice.c",))
    new = bench.check({"slim/csrc/twice.c": KERNEL}, builds=(build,))
    assert (new.scope.rung, new.scope.word) == ("hot", "native")
    files = {**bench.base.files, "slim/csrc/twice.c": bench.put(KERNEL)}
    base = Release("k", 1, files, builds=(build,), libraries={"twice": "f" * 64})
    changed: dict[str, str | bytes | None] = {"slim/csrc/twice.c": KERNEL.replace("2 *", "4 *")}
    assert bench.check(changed, base=base).scope.rung == "warm"
    untouched = bench.check({"slim/csrc/twice.c": KERNEL, "slim/x.py": "A = 1\n"}, base=base)
    assert untouched.scope.word != "native"


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (Build("x", ("slim/csrc/none.c",)), "isn't in the tree"),
        (Build("x", ("slim/model.py",)), "only .c files"),
        (Build("../x", ("slim/csrc/twice.c",)), "small letters"),
        (Build("x", ()), "no sources"),
        (Build("x", ("slim/csrc/twice.c",), ("-fplugin=evil.so",)), "not allowed"),
        (Build("x", ("slim/csrc/twice.c",), ("-I/etc",)), "not allowed"),
        (Build("x", ("slim/csrc/twice.c",), ("-Wl,-rpath,/tmp",)), "not allowed"),
        (Build("x", ("slim/csrc/twice.c",), ("@/etc/passwd",)), "not allowed"),
    ],
)
def test_a_bad_build_is_refused(build: Build, says: str) -> None:
    assert says in Bench().refusal({"slim/csrc/twice.c": KERNEL}, builds=(build,))


def test_a_c_source_that_no_build_names_is_refused() -> None:
    assert "in no build" in Bench().refusal({"slim/csrc/twice.c": KERNEL})


def test_checking_never_runs_the_candidate() -> None:
    """The source would leave a mark if any of its lines ran."""
    source = "import builtins\nbuiltins.candidate_ran = True\n"
    Bench().check({"slim/new.py": source})
    assert not hasattr(sys.modules["builtins"], "candidate_ran")


def test_the_evaluator_imports_no_torch_and_no_numpy() -> None:
    code = (
        "import sys, evaluator.actor, evaluator.recompute\n"
        "print([m for m in ('torch', 'numpy', 'tokenizers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
