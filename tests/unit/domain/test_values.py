"""What people write, read back as they meant it."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.values import (
    counted,
    format_duration,
    format_rate,
    is_name,
    parse_duration,
    parse_name,
    parse_rate,
    parse_time,
)

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("100ms", timedelta(milliseconds=100)),
        ("0.1s", timedelta(milliseconds=100)),
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("24h", timedelta(hours=24)),
        ("7d", timedelta(days=7)),
        ("0s", timedelta(0)),
        ("1.5h", timedelta(minutes=90)),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, span: timedelta) -> None:
    assert parse_duration(text) == span


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-5s", "+5s", "5 s", "5S", "1e3s", "5s\n", "٣s", ".5s", "5.s", "nan", "1w"]
)
def test_other_text_is_no_duration_and_the_error_says_what_is(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration: a number and a unit"):
        parse_duration(text)


def test_a_duration_beyond_all_time_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        parse_duration("999999999999d")


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(microseconds=500), "0.5ms"),
        (timedelta(milliseconds=1500), "1500ms"),
        (timedelta(seconds=90), "90s"),
        (timedelta(hours=6), "6h"),
        (timedelta(hours=24), "1d"),
    ],
)
def test_a_duration_is_written_in_its_largest_whole_unit(span: timedelta, text: str) -> None:
    assert format_duration(span) == text


@given(st.timedeltas(timedelta(0), timedelta(days=10_000)))
def test_a_duration_survives_being_written(span: timedelta) -> None:
    assert abs(parse_duration(format_duration(span)) - span) <= timedelta(microseconds=1)


@pytest.mark.parametrize(("text", "rate"), [("10/s", 10.0), ("0.5/s", 0.5), ("1000/s", 1000.0)])
def test_a_rate_is_a_number_per_second(text: str, rate: float) -> None:
    assert parse_rate(text) == rate
    assert format_rate(rate) == text


@pytest.mark.parametrize("text", ["10", "0/s", "0.0/s", "-1/s", "1/m", "inf/s", "/s", "1e9/s"])
def test_other_text_is_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match="is no rate"):
        parse_rate(text)


@pytest.mark.parametrize("name", ["a", "acme", "9-lives", "a" * 63])
def test_a_name_is_lower_case_letters_digits_and_hyphens(name: str) -> None:
    assert parse_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "Acme", "a_b", "a" * 64, "a\n", "é", "a/b", "a b"])
def test_other_text_is_no_name(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(ValueError, match="is no name"):
        parse_name(name)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-01T12:00:00Z", NOON),
        ("2026-03-01T12:00:00", NOON),
        ("2026-03-01T13:00:00+01:00", NOON),
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("15m", NOON - timedelta(minutes=15)),
        ("7d", NOON - timedelta(days=7)),
    ],
)
def test_a_time_is_an_instant_or_an_age(text: str, moment: datetime) -> None:
    assert parse_time(text, NOON.astimezone(timezone(timedelta(hours=5)))) == moment
    assert parse_time(text, NOON).utcoffset() == timedelta(0)


@pytest.mark.parametrize("text", ["", "yesterday", "12:00", "2026-13-01", "999999999d", "0001-01-01T00:00+14:00"])
def test_other_text_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        parse_time(text, NOON)


def test_an_error_repeats_only_the_beginning_of_what_was_given() -> None:
    with pytest.raises(ValueError, match="no duration") as refused:
        parse_duration("x" * 5000)
    assert len(str(refused.value)) < 200


def test_a_number_goes_with_its_words() -> None:
    told = [counted(number, "delivery waits", "deliveries wait") for number in (0, 1, 2)]
    assert told == ["0 deliveries wait", "1 delivery waits", "2 deliveries wait"]
