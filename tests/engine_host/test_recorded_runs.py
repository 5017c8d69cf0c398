"""Noting which functions of a tree ran, for engines too large for a profiler."""

from types import ModuleType

from engine_host.child import calls
from engine_host.child.tree import Tree

SOURCE = """
def wrap(function):
    def wrapped():
        return function()
    return wrapped

@wrap
def used():
    return [helper(n) for n in range(3)]

def helper(n):
    yield n

class Thing:
    def method(self):
        return used()

    def idle(self):
        return 0
"""


def run(recorder, where="<root>", warm=0):
    tree = Tree(where, {"pkg.py": SOURCE})
    module = ModuleType("pkg")

    def load():
        exec(tree.code("pkg.py"), vars(module))

    def use():
        [list(made) for made in module.Thing().method()]

    first = recorder(tree, load)
    for _ in range(warm):
        use()
    return first, recorder(tree, use)


def names(found):
    return {name for _, name in found}


def test_functions_that_ran_are_noted_by_file_and_name():
    at_import, at_use = run(calls.record_runs)
    assert names(at_import) == {"wrap", "Thing"}
    assert {"Thing.method", "used", "helper", "wrap.<locals>.wrapped"} <= names(at_use)
    assert "Thing.idle" not in names(at_use)
    assert {file for file, _ in at_use} == {"<root>/pkg.py"}


def test_a_profiler_says_the_same(monkeypatch):
    cheap = run(calls.record_runs)
    monkeypatch.setattr(calls, "_counts_runs", lambda: False)
    monkeypatch.delattr(calls.sys, "monitoring", raising=False)
    dear = run(calls.record_runs)
    assert [names(a) - {"<module>"} for a in dear] == [names(a) for a in cheap]
