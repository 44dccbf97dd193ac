"""Counts that add up, whoever counted them."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.tallies import DESTINATION, PARTNER, TOTAL, Tally, bucket, quantiles


def test_what_was_taken_is_not_counted_again_and_the_total_is_that_of_the_partners() -> None:
    tally = Tally()
    shop, other, depot = tally.of(PARTNER, "shop"), tally.of(PARTNER, "other"), tally.of(DESTINATION, "depot")
    shop["accepted"] += 2
    other["accepted"] += 1
    depot["delivered"] += 9

    taken = tally.take()

    assert taken[PARTNER, "shop"] == {"accepted": 2}
    assert taken[TOTAL] == {"accepted": 3}
    shop["accepted"] += 1
    assert tally.take() == {(PARTNER, "shop"): {"accepted": 1}, TOTAL: {"accepted": 1}}
    assert tally.take() == {TOTAL: {}}


@given(st.lists(st.floats(0.001, 100_000), min_size=1, max_size=200), st.sampled_from((0.5, 0.95, 0.99)))
def test_a_quantile_is_an_eighth_off_at_most(spans: list[float], part: float) -> None:
    counts = Counter(bucket("lag", span) for span in spans)
    exact = sorted(spans)[max(0, -(-len(spans) * part // 1).__int__() - 1)]

    (found,) = quantiles(counts, "lag", [part])

    assert found == pytest.approx(exact, rel=0.125, abs=0.0005)


def test_where_there_is_no_span_there_is_no_quantile() -> None:
    assert quantiles({"latency~3": 4}, "lag", (0.5, 0.99)) == [None, None]
