"""When a destination is left alone, and how it comes back."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from delivery.breaker import Breaker, Row, closed, opened, probing
from delivery.classify import Evidence, Meaning, Verdict

NOW = datetime(2026, 12, 1, tzinfo=UTC)
RESET = timedelta(seconds=30)
TOKEN = UUID(int=7)
GOOD, BAD, NONE = Evidence.GOOD, Evidence.BAD, Evidence.NONE


def a_breaker(failures: int = 3, concurrency: int = 4) -> Breaker:
    return Breaker("warehouse", failures=failures, reset=RESET, concurrency=concurrency)


def an_open_breaker() -> Breaker:
    breaker = a_breaker()
    breaker.observe(opened(breaker.row, NOW))
    return breaker


def after(breaker: Breaker, *outcomes: Evidence) -> bool:
    for outcome in outcomes:
        breaker.record(outcome)
    return breaker.should_open


@pytest.mark.parametrize(
    ("outcomes", "opens"),
    [
        ((BAD, BAD), False),
        ((BAD, BAD, BAD), True),
        ((BAD, GOOD, BAD, GOOD, BAD), True),  # most of the last five
        ((BAD, BAD, GOOD, GOOD, GOOD, BAD), False),  # the first has left the window
        ((BAD, NONE, NONE, NONE, BAD, NONE, BAD), True),  # what says nothing takes no place
        ((NONE,) * 20, False),
        ((GOOD, BAD) * 10, True),
        ((BAD, GOOD, GOOD) * 10, False),
    ],
)
def test_it_opens_when_most_of_the_recent_outcomes_were_bad(outcomes: tuple[Evidence, ...], opens: bool) -> None:
    assert after(a_breaker(), *outcomes) is opens


def test_one_failure_opens_a_breaker_of_one() -> None:
    assert after(a_breaker(failures=1), BAD)


def test_a_closed_breaker_wants_no_probe() -> None:
    assert a_breaker().probe_at is None


def test_a_probe_goes_out_once_it_has_been_open_for_the_reset_time() -> None:
    assert an_open_breaker().probe_at == NOW + RESET


def test_the_next_probe_goes_out_once_the_one_before_counts_as_lost() -> None:
    breaker = an_open_breaker()
    until = NOW + timedelta(seconds=70)
    breaker.observe(probing(breaker.row, TOKEN, until))
    assert breaker.probe_at == until


def test_what_ends_while_it_is_open_is_no_news() -> None:
    breaker = an_open_breaker()
    assert not after(breaker, BAD, BAD, BAD)
    breaker.observe(closed(breaker.row, NOW))
    assert not after(breaker, BAD, BAD)


@pytest.mark.parametrize(
    ("verdict", "state"),
    [
        (Verdict(Meaning.DELIVERED, GOOD), "closed"),
        (Verdict(Meaning.FAILED, NONE), "closed"),  # a 404: it lives
        (Verdict(Meaning.FAILED, BAD), "open"),
        (Verdict(Meaning.INTERRUPTED, NONE), "open"),
    ],
)
def test_a_probe_decides(verdict: Verdict, state: str) -> None:
    breaker = an_open_breaker()
    breaker.observe(probing(breaker.row, TOKEN, NOW + RESET * 2))
    assert breaker.after_probe(verdict, NOW + RESET).state == state


def test_a_failed_probe_waits_the_whole_reset_time_again_and_an_interrupted_one_does_not() -> None:
    breaker = an_open_breaker()
    breaker.observe(probing(breaker.row, TOKEN, NOW + RESET * 2))
    failed = breaker.after_probe(Verdict(Meaning.FAILED, BAD), NOW + RESET)
    interrupted = breaker.after_probe(Verdict(Meaning.INTERRUPTED, NONE), NOW + RESET)
    breaker.observe(failed)
    assert breaker.probe_at == NOW + RESET * 2
    again = an_open_breaker()
    again.observe(interrupted)
    assert again.probe_at == NOW + RESET


def test_what_opened_it_is_forgotten_once_it_closes() -> None:
    breaker = a_breaker()
    assert after(breaker, BAD, BAD, BAD)
    breaker.observe(opened(breaker.row, NOW))
    breaker.observe(closed(breaker.row, NOW))
    assert not after(breaker, BAD, BAD)


def test_it_comes_back_one_at_a_time() -> None:
    breaker = an_open_breaker()
    breaker.observe(closed(breaker.row, NOW))
    allowed = [breaker.concurrency]
    for _ in range(4):
        breaker.record(GOOD)
        allowed.append(breaker.concurrency)
    assert allowed == [1, 2, 3, 4, 4]


def test_a_failure_during_the_ramp_starts_it_again() -> None:
    breaker = an_open_breaker()
    breaker.observe(closed(breaker.row, NOW))
    after(breaker, GOOD, GOOD, BAD)
    assert breaker.concurrency == 1


def test_a_breaker_that_was_never_open_has_no_ramp() -> None:
    assert a_breaker().concurrency == 4


def test_a_row_seen_again_takes_back_nothing_of_the_ramp() -> None:
    breaker = an_open_breaker()
    row = closed(breaker.row, NOW)
    breaker.observe(row)
    breaker.record(GOOD)
    breaker.observe(row)
    assert breaker.concurrency == 2


def test_an_older_row_that_arrives_late_changes_nothing() -> None:
    breaker = an_open_breaker()
    breaker.observe(Row())
    assert breaker.row.state == "open"


def test_an_edit_takes_effect_at_once() -> None:
    breaker = a_breaker(failures=5)
    after(breaker, BAD, BAD)
    breaker.adjust(failures=2, reset=timedelta(seconds=1), concurrency=9)
    assert breaker.should_open
    assert breaker.concurrency == 9
