"""The fast way to a value finds what the plain one finds."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain import sources
from ingest import pointers

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abé/~"), inner, max_size=3)
)
PATHS = st.lists(st.sampled_from(["a", "b", "é", "/", "~", "0", "1", "01", "-"]), max_size=4).map(tuple)


@given(VALUES, PATHS, st.booleans())
def test_both_ways_find_the_same_in_any_json(value: object, path: tuple[str, ...], ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()

    assert pointers.look_up(body, path) == sources.look_up(body, path)


@pytest.mark.parametrize(
    "body",
    [b"", b" ", b"no json", b"{", b'{"a"', b"[" * 100_000, b'{"a":' * 50_000, b'{"a":NaN}', b'{"a":"x","n":NaN}',
     b"\xff", b'{"a":"\\ud800"}', b'{"a":"x","a":"y"}', b'{"a":"x"} x', b'\xef\xbb\xbf{"a":"x"}', b'{"a":0123}',
     b'{"\\u0061":"x"}',
     b'\xff\xfe{\0"\0a\0"\0:\x001\0}\0', b'{"a":18446744073709551617}', b'{"a":1E400}', b'"a"', b'{"a":"\xff"}'],
)  # fmt: skip
def test_both_ways_agree_on_what_breaks_others(body: bytes) -> None:
    assert pointers.look_up(body, ("a",)) == sources.look_up(body, ("a",))


@given(st.binary(max_size=100))
def test_no_body_makes_the_fast_way_fail(body: bytes) -> None:
    pointers.look_up(body, ("a", "0"))


def test_twenty_megabytes_of_rubbish_are_skipped_and_not_built() -> None:
    body = b'{"type":"x","pad":[' + b"[]," * 6_000_000 + b"0]}"

    began = time.perf_counter()
    assert pointers.look_up(body, ("type",)) == "x"
    assert time.perf_counter() - began < 0.3  # json takes seconds and a gigabyte


def test_no_element_is_looked_for_in_a_huge_array() -> None:
    assert pointers.look_up(b"[1" + b",1" * 200_000 + b"]", ("0",)) is None
