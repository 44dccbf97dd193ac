"""The backlog, as people see it: how much waits, how old it is, and what it waits for."""

from __future__ import annotations

from datetime import timedelta

import pytest

from storage import backlog
from storage.backlog import Backlog
from tests.by_hand import Hand


def seen(hand: Hand) -> Backlog:
    with hand.store.begin() as connection:
        (only,) = backlog.backlog(connection)
    return only


def test_a_partner_with_nothing_waiting_shows_an_empty_lane(hand: Hand) -> None:
    hand.lane()

    partner = seen(hand)

    assert (partner.waiting, partner.oldest_seconds) == (0, None)
    (lane,) = partner.lanes
    assert (lane.waiting, lane.head, lane.blocked_by, lane.drain_seconds) == (0, None, None, 0.0)


def test_the_backlog_counts_what_waits_and_how_old_it_is(hand: Hand) -> None:
    hand.lane()
    first, _, third = hand.posted(3)
    hand.deliver(first)
    hand.park(third)
    hand.age(timedelta(hours=1))
    hand.sql("UPDATE lanes SET head_at = '-infinity'")
    hand.post(n=2)
    hand.sql("UPDATE partner_tails SET drain_per_second = 2")

    partner = seen(hand)

    assert (partner.waiting, partner.undispatched) == (3, 2)
    assert partner.oldest_seconds == pytest.approx(3600, abs=60)
    (lane,) = partner.lanes
    assert (lane.waiting, lane.parked, lane.head_sequence, lane.drain_seconds) == (1, 1, 2, 0.5)


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        ("UPDATE partners SET state = 'paused'", "partner paused"),
        ("UPDATE destinations SET state = 'paused'", "destination paused"),
        ("UPDATE destinations SET state = 'suspended'", "destination suspended"),
        ("UPDATE destinations SET removed_at = now()", "destination removed"),
        ("UPDATE gates SET breaker = 'open', opened_at = now()", "breaker open, probe due in 30 s"),
        ("UPDATE gates SET breaker = 'open', opened_at = now() - interval '1 h'", "breaker open, probe due"),
        ("UPDATE gates SET breaker = 'half_open', probe_token = gen_random_uuid()", "breaker half open"),
        ("UPDATE deliveries SET next_attempt_at = now() + interval '60 s' WHERE seq = 1", "retry due in 60 s"),
        ("UPDATE deliveries SET next_attempt_at = now() - interval '60 s' WHERE seq = 1", None),
        ("UPDATE gates SET in_flight = 10", "concurrency of the destination"),
        ("UPDATE gates SET tokens = 0.1, refilled_at = now()", "rate of the destination"),
    ],
)
def test_a_lane_says_what_it_waits_for(hand: Hand, cause: str, told: str | None) -> None:
    hand.lane(rate=1.0)
    hand.posted(2)
    hand.sql(cause)

    blocked = seen(hand).lanes[0].blocked_by

    assert blocked == told or (told is not None and blocked is not None and blocked.startswith(told))


def test_a_parked_event_that_holds_its_lane_is_its_head(hand: Hand) -> None:
    hand.lane(on_park="hold")
    ids = hand.posted(2)
    hand.park(ids[0], holding=True)

    (lane,) = seen(hand).lanes

    assert lane.head == ids[0]
    assert lane.blocked_by == "a parked event holds the lane"
