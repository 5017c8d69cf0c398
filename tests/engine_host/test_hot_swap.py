"""Changes made inside a running module: what follows them, and what must refuse."""

import linecache
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from types import ModuleType
from typing import Any

import pytest

from engine_host.child.swap import NotHot, apply_changes
from engine_host.child.tree import Tree, purge

NUMBERS = count()
USER = "from .model import Model, double\n\n\ndef use(x):\n    return double(x)\n"
MODEL = '''
import math

SCALE = 2


def double(x, extra=0):
    """Twice."""
    return x * SCALE + extra


def outer(n):
    def inner(x):
        return x + n
    return inner


class Base:
    def name(self):
        return "base"


class Model(Base):
    limit = 10

    def __init__(self):
        self.built = 1

    def name(self):
        return "model " + super().name()

    def step(self, x):
        return double(x)

    @property
    def size(self):
        return 1

    @staticmethod
    def plain(x):
        return x

    @classmethod
    def make(cls):
        return cls()
'''


@dataclass
class Running:
    """A package with two imported modules, `model` and `user` (which imports from it)."""

    tree: Tree
    name: str

    @property
    def model(self) -> Any:
        return sys.modules[f"{self.name}.model"]

    @property
    def user(self) -> Any:
        return sys.modules[f"{self.name}.user"]

    def change(self, *replacements: tuple[str, str], file: str = "model", **more: Any) -> list[str]:
        text = self.tree.sources[f"{self.name}/{file}.py"]
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        return self.write({file: text}, **more)

    def write(self, files: dict[str, str | None], **more: Any) -> list[str]:
        given = {f"{self.name}/{file}.py": text for file, text in files.items()}
        return apply_changes(self.tree, given, **more)


@pytest.fixture
def running() -> Iterator[Running]:
    name = f"swapped{next(NUMBERS)}"
    sources = {
        f"{name}/__init__.py": "",
        f"{name}/model.py": MODEL,
        f"{name}/user.py": USER,
    }
    tree = Tree(f"/nowhere/{name}", sources)
    tree.install()
    __import__(f"{name}.user")
    yield Running(tree, name)
    del sys.meta_path[0]
    purge(name)


def test_a_changed_body_is_followed_by_everyone_who_holds_the_function(running: Running):
    held = running.user.double
    model = running.model.Model()
    assert running.change(("x * SCALE + extra", "x * 100")) == [f"{running.name}/model.py:double"]
    assert held(2) == running.user.use(2) == model.step(2) == 200


def test_a_changed_method_is_followed_by_living_objects(running: Running):
    model = running.model.Model()
    bound = model.step
    running.change(("return double(x)", "return -x"))
    assert model.step(3) == bound(3) == -3


def test_super_still_works_in_a_changed_method(running: Running):
    model = running.model.Model()
    running.change(('"model " + super().name()', '"new " + super().name()'))
    assert model.name() == "new base"


def test_super_works_in_an_added_method(running: Running):
    model = running.model.Model()
    running.change(
        ("    limit = 10", "    limit = 10\n\n    def up(self):\n        return super().name()")
    )
    assert model.up() == "base"


@pytest.mark.parametrize(
    ("old", "new", "read"),
    [
        (
            "def size(self):\n        return 1",
            "def size(self):\n        return 5",
            lambda m: m.size,
        ),
        (
            "def plain(x):\n        return x",
            "def plain(x):\n        return 5",
            lambda m: m.plain(0),
        ),
        ("return cls()", "return 5", lambda m: m.make()),
    ],
    ids=["property", "staticmethod", "classmethod"],
)
def test_the_function_behind_a_standard_decorator_is_reached(running: Running, old, new, read):
    model = running.model.Model()
    running.change((old, new))
    assert read(model) == 5


def test_changed_defaults_and_arguments_are_followed(running: Running):
    running.change(("def double(x, extra=0):", "def double(x, extra=SCALE, *, more=1):"))
    assert running.user.double(1) == 4
    assert running.user.double.__kwdefaults__ == {"more": 1}


def test_added_functions_constants_imports_and_classes_are_there(running: Running):
    running.change(
        ("import math", "import math\nimport json as fast_json\nfrom math import floor, pi"),
        ("SCALE = 2", "SCALE = 2\nOFFSET = floor(pi)\n\n\nclass New:\n    value = OFFSET"),
        ("return x * SCALE + extra", "return helper(x)"),
        ("def outer(n)", "def helper(x):\n    return x + New.value\n\n\ndef outer(n)"),
    )
    assert running.user.use(1) == 4
    assert running.model.fast_json.dumps(1) == "1"


def test_a_name_added_to_an_import_of_several_is_an_addition(running: Running):
    running.change(
        ("import Model, double", "import Base, Model, double"),
        ("return double(x)", "return Base().name()"),
        file="user",
    )
    assert running.user.use(1) == "base"


def test_a_new_file_can_be_imported_by_a_changed_body(running: Running):
    text = running.tree.sources[f"{running.name}/user.py"]
    running.write(
        {
            "fast": "def use(x):\n    return x * 7\n",
            "user": text.replace("return double(x)", "from .fast import use\n    return use(x)"),
        }
    )
    assert running.user.use(1) == 7


def test_files_that_need_each_others_additions_are_changed_together(running: Running):
    user = running.tree.sources[f"{running.name}/user.py"]
    running.write(
        {
            "user": user.replace("import Model, double", "import Model, double, fresh").replace(
                "return double(x)", "return fresh(x)"
            ),
            "model": MODEL + "\n\ndef fresh(x):\n    return x + 0.5\n",
        }
    )
    assert running.user.use(1) == 1.5


def test_a_module_that_was_not_imported_yet_is_simply_new(running: Running):
    running.tree.overlay({f"{running.name}/late.py": "VALUE = 1\n"})
    running.write({"late": "VALUE = 2\n"})
    late = __import__(f"{running.name}.late", fromlist=["VALUE"])
    assert late.VALUE == 2


def test_a_living_closure_follows_when_its_outer_names_are_the_same(running: Running):
    add = running.model.outer(10)
    running.change(("return x + n", "return x - n"))
    assert add(1) == -9


def test_a_living_closure_that_uses_other_outer_names_refuses(running: Running):
    add = running.model.outer(10)
    with pytest.raises(NotHot, match="in use"):
        running.change(("return x + n", "return x"))
    assert add(1) == 11


def test_tracebacks_show_the_new_source(running: Running):
    running.change(("return x * SCALE + extra", "raise RuntimeError('here')  # new line"))
    with pytest.raises(RuntimeError) as caught:
        running.user.use(1)
    text = "".join(traceback.format_exception(caught.value))
    assert "# new line" in text
    linecache.clearcache()


def test_a_generator_may_take_a_functions_place(running: Running):
    running.change(("return x * SCALE + extra", "yield x"))
    assert list(running.user.use(4)) == [4]


def test_comments_and_docstrings_change_nothing(running: Running):
    assert running.change(('"""Twice."""', '"""Two times."""')) == [
        f"{running.name}/model.py:double"
    ]
    assert running.change(("import math", "# a comment\nimport math")) == []


def test_what_was_not_changed_is_not_touched(running: Running):
    before = {n: v for n, v in vars(running.model).items() if not n.startswith("__")}
    code = running.model.outer.__code__
    running.change(("x * SCALE + extra", "x"))
    after = {n: v for n, v in vars(running.model).items() if not n.startswith("__")}
    assert before == after
    assert running.model.outer.__code__ is code


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("SCALE = 2", "SCALE = 3", "rebinds SCALE"),
        ("SCALE = 2", "SCALE = 2\nprint(SCALE)", "when the module is imported"),
        ("SCALE = 2", "SCALE = 2\nmath = None", "rebinds math"),
        ("    limit = 10", "    limit = 11", "rebinds limit"),
        ("SCALE = 2\n", "", "when the module is imported"),
        ("class Model(Base)", "class Model(dict)", "bases"),
        ("self.built = 1", "self.built = 2", "constructor"),
        ("    @staticmethod\n", "", "decorators"),
        ("def outer(n)", "def renamed(n)", "removes outer"),
        ("class Base:", "class Other:", "removes Base"),
        ("import math", "from __future__ import annotations\nimport math", "__future__"),
        ("import math", "import math\nfrom json import *", "star"),
        ("import math", "import math\nif math.pi > 3:\n    import json", "imported"),
    ],
)
def test_what_would_need_the_module_to_run_again_refuses(running: Running, old, new, why):
    with pytest.raises(NotHot, match=why):
        running.change((old, new))


def test_a_function_that_ran_while_the_engine_was_built_refuses(running: Running):
    ran = {(running.tree.filename(f"{running.name}/model.py"), "double")}
    with pytest.raises(NotHot, match="while the engine was built"):
        running.change(("x * SCALE + extra", "x"), ran_at_build=ran)


def test_a_function_hidden_by_an_unknown_wrapper_refuses(running: Running):
    class Wrapper:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

    running.model.double = Wrapper(running.model.double)
    with pytest.raises(NotHot, match="reached"):
        running.change(("x * SCALE + extra", "x"))


def test_a_function_behind_functools_wraps_is_reached(running: Running):
    import functools

    original = running.model.double

    @functools.wraps(original)
    def traced(*args: Any) -> Any:
        return original(*args)

    running.model.double = traced
    running.change(("x * SCALE + extra", "x * 50"))
    assert traced(2) == 100


def test_a_deleted_file_that_is_in_use_refuses(running: Running):
    with pytest.raises(NotHot, match="deletes"):
        running.write({"user": None})


def test_broken_syntax_is_an_error_not_a_refusal(running: Running):
    with pytest.raises(SyntaxError):
        running.change(("SCALE = 2", "SCALE = ="))


def test_an_added_import_that_fails_says_so(running: Running):
    with pytest.raises(ImportError, match="no_such_module"):
        running.change(("import math", "import math\nimport no_such_module"))


def test_modules_stay_the_same_objects(running: Running):
    before: ModuleType = running.model
    running.change(("x * SCALE + extra", "x"))
    assert running.model is before
