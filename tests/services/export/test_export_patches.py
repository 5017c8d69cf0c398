import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.export import ExportError
from services.export.patches import file_name, patch

TOOLS = (["git", "apply", "-"], ["patch", "-p1", "--no-backup-if-mismatch", "-s"])
CONTENT = st.text(alphabet="ab \n\r\x0c\u2028-+@\\é", max_size=40).map(str.encode)


def applied(tool, folder, before, text):
    """The tree in `folder` after a tool applied the patch to `before`."""
    folder.mkdir()
    for path, content in before.items():
        if content is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
    done = subprocess.run(tool, cwd=folder, input=text, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("tool", TOOLS, ids=["git", "patch"])
def test_a_patch_makes_the_very_files(tmp_path, tool):
    before = {
        "vllm/changed.py": b"a\nb\x0cc\nd\n",
        "vllm/no_end.py": b"a\nb",
        "vllm/gone.py": b"a\n",
        "vllm/same.py": b"a\n",
        "vllm/new.py": None,
        "vllm/deep/empty.py": None,
    }
    after = {
        "vllm/changed.py": b"a\nb\x0cC\nd\n",
        "vllm/no_end.py": b"a\nb\n",
        "vllm/gone.py": None,
        "vllm/same.py": b"a\n",
        "vllm/new.py": b"one\r\ntwo",
        "vllm/deep/empty.py": b"",
    }

    found = applied(tool, tmp_path / "tree", before, patch(["a title"], before, after))

    assert found == {path: content for path, content in after.items() if content is not None}


@settings(max_examples=25, deadline=None)
@given(old=CONTENT, new=CONTENT)
def test_any_text_becomes_any_other(tmp_path_factory, old, new):
    text = patch([], {"a.py": old}, {"a.py": new})
    for tool in TOOLS if text else ():
        folder = tmp_path_factory.mktemp("any") / "tree"
        # `patch` takes a file that becomes empty away, and so it does for a user.
        assert applied(tool, folder, {"a.py": old}, text).get("a.py", b"") == new


@pytest.mark.parametrize("tool", TOOLS, ids=["git", "patch"])
def test_what_a_proposer_wrote_is_never_taken_for_a_change(tmp_path, tool):
    why = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+evil\n"

    text = patch([why], {"x.py": b"a\n", "y.py": b"a\n"}, {"x.py": b"a\n", "y.py": b"b\n"})

    found = applied(tool, tmp_path / "tree", {"x.py": b"a\n", "y.py": b"a\n"}, text)
    assert found == {"x.py": b"a\n", "y.py": b"b\n"}


def test_what_is_no_text_is_refused_by_name():
    with pytest.raises(ExportError, match=r"m\.bin is no text"):
        patch([], {"m.bin": None}, {"m.bin": b"\0"})


def test_a_patch_is_named_after_its_candidate():
    assert file_name(3, "C kernel: whole decode step") == "0003-c-kernel-whole-decode-step.patch"
    assert file_name(1, "…") == "0001-change.patch"
