"""An answer is read the same way however it is cut, and its framing is never trusted further than it holds."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery.answer import LIMIT_BYTES, Answer, BadAnswer


def read(data: bytes, *, closed: bool = False) -> Answer:
    answer = Answer()
    answer.feed(data)
    if closed:
        answer.end()
    return answer


def test_an_answer_with_a_length_leaves_a_clean_connection() -> None:
    answer = read(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert (answer.status, answer.body, answer.complete, answer.reusable) == (200, b"ok", True, True)


def test_a_status_stands_before_its_body() -> None:
    answer = read(b"HTTP/1.1 201 Created\r\ncontent-length: 10\r\n\r\nabc")
    assert (answer.status, answer.body, answer.complete) == (201, b"abc", False)


def test_chunks_are_put_together_and_trailers_passed_over() -> None:
    answer = read(
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nx-sum: 1\r\n\r\n"
    )
    assert (answer.body, answer.complete, answer.reusable) == (b"abcde", True, True)


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    answer = read(b"HTTP/1.1 200 OK\r\n\r\nabc", closed=True)
    assert (answer.body, answer.complete, answer.reusable) == (b"abc", True, False)


def test_interim_answers_are_passed_over() -> None:
    answer = read(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.1 204 No\r\n\r\n")
    assert (answer.status, answer.complete, answer.reusable) == (204, True, True)


def test_nothing_but_interim_answers_is_no_answer() -> None:
    with pytest.raises(BadAnswer, match="interim"):
        read(b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 204 No Content\r\n\r\nhello",
        b"HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive, Close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nHTTP",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
    ],
)
def test_a_connection_of_doubtful_framing_is_not_used_again(data: bytes) -> None:
    answer = read(data)
    assert answer.complete
    assert not answer.reusable


@pytest.mark.parametrize(
    "lengths", [b"content-length: x", b"content-length: 1\r\ncontent-length: 2", b"content-length: -1"]
)
def test_a_length_that_makes_no_sense_is_no_length(lengths: bytes) -> None:
    answer = read(b"HTTP/1.1 200 OK\r\n" + lengths + b"\r\n\r\nab")
    assert (answer.status, answer.complete) == (200, False)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-x\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 099 x\r\n\r\n", b"HTTP/1.1 2000 x\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n", b"\x16\x03\x01", b"HTTP/1.1200 OK\r\n\r\n", b"<html>",
    ],
)  # fmt: skip
def test_what_is_not_http_is_known_at_once(data: bytes) -> None:
    with pytest.raises(BadAnswer):
        read(data)


@pytest.mark.parametrize("size", [b"ZZZ", b"", b"-1", b"0x1", b"1 1", b"f" * 16])
def test_a_chunk_size_that_is_none_ends_the_body(size: bytes) -> None:
    answer = Answer()
    with pytest.raises(BadAnswer, match="chunk"):
        answer.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + size + b"\r\nabc\r\n")
    assert answer.status == 200


def test_headers_are_taken_as_they_are() -> None:
    odd = [b"X-Odd: \xe9\xff", b"location: \x01\x7f", b"folded: a", b"  b", b"spaced : c", b"nonsense"]
    answer = read(b"HTTP/1.1 500 No\r\n" + b"\r\n".join(odd) + b"\r\n\r\n")
    assert answer.headers == [
        (b"x-odd", b"\xe9\xff"),
        (b"location", b"\x01\x7f"),
        (b"folded", b"a b"),
        (b"spaced", b"c"),
    ]


def test_bare_line_feeds_end_lines_too() -> None:
    answer = read(b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok")
    assert (answer.status, answer.body, answer.complete) == (200, b"ok", True)


@pytest.mark.parametrize("status", [200, 299, 304, 418, 599, 600, 999])
def test_any_three_digits_are_a_status(status: int) -> None:
    assert read(b"HTTP/1.1 %d\r\ncontent-length: 0\r\n\r\n" % status).status == status


def test_headers_without_end_are_refused_at_the_cap() -> None:
    with pytest.raises(BadAnswer, match="64 KiB"):
        read(b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 10_000)


def test_no_more_of_a_body_is_kept_than_the_cap() -> None:
    answer = read(b"HTTP/1.1 200 OK\r\ncontent-length: 2000000000\r\n\r\n" + b"z" * 300_000)
    assert answer.is_full
    assert len(answer.body) < LIMIT_BYTES


def test_an_answer_that_never_came_says_so() -> None:
    with pytest.raises(BadAnswer, match="closed before"):
        Answer().end()
    half = read(b"HTTP/1.1 200 OK\r\nx-")
    with pytest.raises(BadAnswer, match="within"):
        half.end()


WHOLE = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx: y\r\n\r\nhello",
    b"HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
]


@given(st.sampled_from(WHOLE), st.lists(st.integers(0, 90), max_size=12))
def test_an_answer_reads_the_same_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    answer = Answer()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, stop in pairwise(edges):
        answer.feed(data[start:stop])
    assert (answer.body, answer.complete, answer.reusable) == (b"hello", True, True)


@given(st.binary(max_size=200))
def test_no_bytes_at_all_raise_anything_but_bad_answer(noise: bytes) -> None:
    for start in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"):
        answer = Answer()
        try:
            answer.feed(start + noise)
            answer.end()
        except BadAnswer:
            continue
