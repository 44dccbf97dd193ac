"""Globs of types: what they take, and that the expression made of them takes the same."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.globs import MAX_GLOBS, normal_globs, pattern_of


@pytest.mark.parametrize(
    ("glob", "taken", "refused"),
    [
        ("order.*", ["order.paid", "order.", "order.a.b"], ["reorder.paid", "Order.paid", "order"]),
        ("a?c", ["abc", "a.c"], ["ac", "abbc"]),
        ("(x)|[y]^$\\{1}+", ["(x)|[y]^$\\{1}+"], ["x", "y", "(x)"]),
    ],
)
def test_a_glob_takes_the_whole_type_or_nothing(glob: str, taken: list[str], refused: list[str]) -> None:
    pattern = re.compile(pattern_of([glob]), re.DOTALL)
    assert all(pattern.search(kind) for kind in taken)
    assert not any(pattern.search(kind) for kind in refused)


@given(st.text("ab.*?", min_size=1, max_size=8), st.text("ab.", max_size=8))
def test_the_expression_takes_what_the_glob_takes(glob: str, kind: str) -> None:
    assert bool(re.fullmatch(pattern_of([glob]), kind, re.DOTALL)) == fnmatchcase(kind, glob)


def test_globs_are_kept_once_each_and_a_lone_star_takes_every_event() -> None:
    assert normal_globs(["b", "a**c", "b"]) == ("a*c", "b")
    assert normal_globs(["a", "**"]) is None
    assert normal_globs([]) is None


@pytest.mark.parametrize("globs", [[""], ["x" * 256], ["a\0"], ["\ud800"], [f"t{n}" for n in range(MAX_GLOBS + 1)]])
def test_globs_that_no_subscription_can_have_are_refused(globs: list[str]) -> None:
    with pytest.raises(ValueError, match="type"):
        normal_globs(globs)
