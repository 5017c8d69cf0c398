"""Edits land by name and by what they expect, and refuse where that is gone."""

import pytest

from proposer.playbook.edit import (
    AnchorGoneError,
    guard,
    holds,
    rebody,
    swap,
)

SOURCE = '''\
"""A module."""


def area(width, height):
    """The area."""
    if width < 0:
        width = 0
    return width * height


class Box:
    def grow(self, by):
        self.width += by
        self.height += by
        return self
'''


def test_a_guard_goes_behind_the_docstring_and_before_everything_else() -> None:
    changed = guard(SOURCE, "area", "if height == 0:\n    return 0")
    assert '"""The area."""\n    if height == 0:\n        return 0\n    if width < 0:' in changed


def test_guards_stack_with_the_newest_first() -> None:
    changed = guard(guard(SOURCE, "Box.grow", "first = 1"), "Box.grow", "second = 2")
    assert changed.index("second = 2") < changed.index("first = 1")


def test_a_swap_finds_its_statements_whatever_their_layout() -> None:
    source = SOURCE.replace("self.width += by", "self.width  +=  by  # wider")
    changed = swap(source, "Box.grow", "self.width += by\nself.height += by", "self.scale(by)")
    assert "        self.scale(by)\n        return self\n" in changed
    assert "+=" not in changed


def test_a_swap_refuses_statements_that_are_gone_or_there_twice() -> None:
    with pytest.raises(AnchorGoneError, match=r"'self.depth \+= by' 0 times"):
        swap(SOURCE, "Box.grow", "self.depth += by", "pass")
    twice = SOURCE.replace("self.height", "self.width")
    with pytest.raises(AnchorGoneError, match="2 times"):
        swap(twice, "Box.grow", "self.width += by", "pass")


def test_a_swap_reaches_into_nested_blocks() -> None:
    assert "width = 1" in swap(SOURCE, "area", "width = 0", "width = 1")


def test_a_new_body_keeps_the_docstring() -> None:
    assert '"""The area."""\n    return 1\n\n\nclass Box' in rebody(SOURCE, "area", "return 1")


def test_an_unknown_function_or_class_is_refused() -> None:
    for name in ("volume", "Ball.grow", "Box.shrink"):
        with pytest.raises(AnchorGoneError):
            guard(SOURCE, name, "pass")


def test_what_was_swapped_in_is_held() -> None:
    new = "self.scale(by)"
    changed = swap(SOURCE, "Box.grow", "self.width += by", new)
    assert holds(changed, "Box.grow", new)
    assert not holds(SOURCE, "Box.grow", new)
