"""Values read from events, whatever the events are."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.sources import (
    MAX_JSON,
    MAX_TYPE,
    Source,
    dedupe_digest,
    look_up,
    order_key_hash,
    parse_source,
    read,
    usable_type,
)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("none", Source("none")),
        ("header:X-Delivery", Source("header", name=b"x-delivery")),
        ("json:", Source("json", path=())),
        ("json:/", Source("json", path=("",))),
        ("json:/a/b", Source("json", path=("a", "b"))),
        ("json:/a~1b/~0/~01", Source("json", path=("a/b", "~", "~1"))),
        ("json:/a:b/ü", Source("json", path=("a:b", "ü"))),
    ],
)
def test_a_source_names_a_header_a_json_pointer_or_nothing(text: str, source: Source) -> None:
    assert parse_source(text) == source


@pytest.mark.parametrize(
    "text", ["", "None", "none:", "header", "header:", "header:a b", "header:é", "header:a:b", "json", "json:a",
             "json:/a~", "json:/~2", "query:x", "header:a\r\n", "json:/" + "x" * 600]
)  # fmt: skip
def test_other_text_is_no_source(text: str) -> None:
    with pytest.raises(ValueError, match="source"):
        parse_source(text)


def test_of_a_repeated_header_the_first_counts_without_surrounding_space() -> None:
    headers = [(b"x-other", b"0"), (b"x-id", b" one "), (b"x-id", b"two")]

    assert read(parse_source("header:X-ID"), headers, b"") == "one"


def test_a_header_of_any_bytes_has_a_value_and_an_empty_one_has_none() -> None:
    assert read(parse_source("header:x-id"), [(b"x-id", b"\xe9\xff")], b"") == "éÿ"
    assert read(parse_source("header:x-id"), [(b"x-id", b"  ")], b"") is None
    assert read(parse_source("header:x-id"), [], b"") is None


@pytest.mark.parametrize(
    ("body", "pointer", "value"),
    [
        (b'{"type":"order.created"}', "/type", "order.created"),
        (b'{"a":{"b":[0,{"c":"x"}]}}', "/a/b/1/c", "x"),
        (b'{"id":7615917337495251231}', "/id", "7615917337495251231"),
        (b'{"id":1' + b"0" * 5000 + b"}", "/id", "1" + "0" * 5000),
        (b'{"n":1.50e3}', "/n", "1.50e3"),
        (b'{"b":true,"c":false}', "/b", "true"),
        (b'{"a":1,"a":2}', "/a", "2"),
        (b'{"":"x"}', "/", "x"),
        (b'"x"', "", "x"),
        (b'{"type":"x","n":NaN}', "/type", "x"),
        (b'\xef\xbb\xbf{"type":"x"}', "/type", "x"),
    ],
)
def test_a_scalar_is_read_as_it_is_written(body: bytes, pointer: str, value: str) -> None:
    assert read(parse_source("json:" + pointer), [], body) == value


@pytest.mark.parametrize(
    "body",
    [b"", b"no json", b"{", b"[" * 100_000, b'{"type":' * 50_000, b'{"type":null}', b'{"type":{}}', b'{"type":[]}',
     b'{"type":NaN}', b'{"type":""}', b'{"type":0123}', b"\xff\xfe", b'["type"]', b'"type"', b"7", b'{"type":"x"} x'],
)  # fmt: skip
def test_where_nothing_can_be_read_there_is_no_value(body: bytes) -> None:
    assert read(parse_source("json:/type"), [], body) is None


@pytest.mark.parametrize("index", ["01", "-", "-1", "2", "x", "", "9" * 30, "١"])
def test_only_a_plain_index_finds_an_element(index: str) -> None:
    assert look_up(b'["a","b"]', (index,)) is None
    assert look_up(b'["a","b"]', ("1",)) == "b"


def test_a_body_beyond_the_bound_is_not_parsed() -> None:
    assert look_up(b'{"a":"x"}' + b" " * MAX_JSON, ("a",)) is None


def test_no_source_has_no_value() -> None:
    assert read(parse_source("none"), [(b"none", b"x")], b'{"none":"x"}') is None


@given(st.binary(max_size=200))
def test_no_body_makes_reading_fail(body: bytes) -> None:
    look_up(body, ("type",))


@pytest.mark.parametrize("value", ["a\0b", "a\r\nEvil: 1", "\x1b[31m", "\ud800", "\x85", "\x7f"])
def test_a_type_with_characters_that_break_others_is_no_type(value: str) -> None:
    assert usable_type(value) is None


def test_a_type_is_cut_to_its_bound_and_may_be_any_words() -> None:
    assert usable_type("x" * 300) == "x" * MAX_TYPE
    assert usable_type("bestellung.größer ☃") == "bestellung.größer ☃"
    assert usable_type(None) is None


def test_a_dedupe_value_of_any_length_and_content_has_a_digest() -> None:
    assert dedupe_digest("msg_1") == hashlib.sha256(b"msg_1").digest()
    assert len(dedupe_digest("\ud800\0" * 10_000)) == 32
    assert dedupe_digest("a") != dedupe_digest("A")


@given(st.text(alphabet=st.characters(), max_size=50))
def test_an_order_key_is_a_positive_63_bit_number(value: str) -> None:
    assert 0 < order_key_hash(value) < 1 << 63
    assert order_key_hash(value) == order_key_hash(value)


def test_equal_values_of_header_and_body_are_equal() -> None:
    header = read(parse_source("header:x-id"), [(b"x-id", b"42")], b"")
    body = read(parse_source("json:/id"), [], json.dumps({"id": 42}).encode())
    assert header == body == "42"
