"""How long a failed delivery waits."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.retry import backoff, retry_after, retry_in

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
BASE, CAP = timedelta(seconds=5), timedelta(hours=6)


def seconds(wait: timedelta | None) -> float | None:
    return None if wait is None else wait.total_seconds()


def test_the_wait_grows_by_its_factor_up_to_the_cap() -> None:
    waits = [seconds(backoff(n, BASE, 3, CAP)) for n in (1, 2, 3, 8, 9, 5000, 10**9)]
    assert waits == [5, 15, 45, 10935, 21600, 21600, 21600]


def test_jitter_moves_the_wait_by_a_fifth_to_either_side() -> None:
    assert [seconds(backoff(1, BASE, 3, CAP, jitter)) for jitter in (-1, 0, 1, 7)] == [4, 5, 6, 6]


def test_a_factor_of_one_waits_the_same_each_time() -> None:
    assert backoff(10_000, BASE, 1, CAP) == BASE


@given(st.integers(1, 10**6), st.floats(0.01, 86400), st.floats(1, 100), st.floats(0.01, 10**6), st.floats(-1, 1))
def test_a_wait_never_leaves_its_bounds(n: int, base: float, factor: float, cap: float, jitter: float) -> None:
    wait = backoff(n, timedelta(seconds=base), factor, timedelta(seconds=cap), jitter).total_seconds()
    assert 0.8 * min(base, cap) - 1e-5 <= wait <= 1.2 * cap + 1e-5


@pytest.mark.parametrize(("value", "asked"), [("120", 120), (" 1 ", 1), ("0010", 10), ("9999999999", 9999999999)])
def test_seconds_are_heeded(value: str, asked: float) -> None:
    assert seconds(retry_after([value], NOW)) == asked


@pytest.mark.parametrize(
    "value",
    [
        "", "0", "-5", "+120", "1_000", "1e9", "12.5", "abc", "١٢", "99999999999999999999", "120 s", "inf", "0x10",
        "2026-12-01T12:00:10Z", "Tue, 01 Dec 2026 11:59:59 GMT", "Tue, 99 Dec 2026 12:00:00 GMT",
        "Tue, 01 Dec 99999 12:00:00 GMT", ",", "Tue, 01 Dec 2026 12:00:00 +9999",
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_not_heeded(value: str) -> None:
    assert retry_after([value], NOW) is None


@pytest.mark.parametrize(
    "value",
    [
        "Tue, 01 Dec 2026 12:00:10 GMT", "Tuesday, 01-Dec-26 12:00:10 GMT", "Tue Dec  1 12:00:10 2026",
        "Tue, 01 Dec 2026 12:00:10 -0000", "Tue, 01 Dec 2026 13:00:10 +0100",
    ],
)  # fmt: skip
def test_a_date_is_heeded_in_each_of_its_forms(value: str) -> None:
    assert seconds(retry_after([value], NOW)) == 10


def test_two_headers_count_only_if_they_agree() -> None:
    assert retry_after(["1", "abc"], NOW) is None
    assert seconds(retry_after(["7", "7"], NOW)) == 7
    assert retry_after([], NOW) is None


def test_what_the_destination_asks_for_only_lengthens_the_wait_and_only_up_to_the_cap() -> None:
    far = format_datetime(NOW + timedelta(days=365), usegmt=True)
    assert retry_in(1, BASE, 3, CAP, 0, retry_after(["1"], NOW)) == BASE
    assert retry_in(1, BASE, 3, CAP, 0, retry_after(["60"], NOW)) == timedelta(seconds=60)
    assert retry_in(1, BASE, 3, CAP, 0, retry_after([far], NOW)) == CAP
    assert retry_in(1, BASE, 3, CAP, 0) == BASE
