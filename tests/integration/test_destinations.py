"""Destinations, as people make, change, close and remove them; and what becomes of what waits for them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from domain.lifecycle import ParkReason
from storage import destinations, parking
from storage.errors import Conflict, Invalid, NotFound
from tests.by_hand import ACTOR, URL, Hand


def shown(hand: Hand, name: str = "warehouse") -> destinations.Destination:
    with hand.store.begin() as connection:
        return destinations.show(connection, hand.vault, name)


def test_a_destination_is_shown_as_it_was_made_with_its_secrets_sealed(hand: Hand) -> None:
    url = f"{URL}?token=hush"
    with hand.store.begin() as connection:
        options = destinations.Options(url=url, headers=["X-Api-Key: shh"], timeout=timedelta(seconds=7), park_on=[422])
        made = destinations.add(connection, hand.vault, "warehouse", options, actor=ACTOR)

    seen = shown(hand)
    assert made is not None
    assert (seen.url, seen.header_names, seen.timeout, seen.park_on) == (
        url,
        ("x-api-key",),
        timedelta(seconds=7),
        [422],
    )
    assert (seen.state, seen.breaker, seen.in_flight) == ("active", "closed", 0)
    for hidden in ("hush", "shh", made):
        assert hidden not in str(hand.rows("SELECT d::text FROM destinations d"))
        assert hidden not in str(hand.rows("SELECT a::text FROM audit a"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": "ftp://h/"}, "http"),
        ({"url": "http://EXAMPLE.com"}, "normal form, write http://example.com/"),
        ({"url": URL, "headers": ["X-A: b\r\nEvil: 1"]}, "printable"),
        ({"url": URL, "timeout": timedelta(milliseconds=1)}, "timeout 1ms: 100ms to 10m are allowed"),
        ({"url": URL, "max_attempts": 0}, "max attempts 0: 1 to"),
        ({"url": URL, "retry_factor": 0.5}, "retry factor 0.5: 1 to 100"),
        ({"url": URL, "park_on": [204]}, "park on 204"),
    ],
)
def test_a_destination_outside_the_allowed_is_refused_with_a_reason(
    hand: Hand, options: destinations.Options, told: str
) -> None:
    with pytest.raises(Invalid, match=told), hand.store.begin() as connection:
        destinations.add(connection, hand.vault, "warehouse", options, actor=ACTOR)
    assert hand.rows("SELECT id FROM destinations") == []


def test_an_edit_changes_what_was_given_and_nothing_else(hand: Hand) -> None:
    hand.destination(timeout=timedelta(seconds=7), rate=5.0)

    with hand.store.begin() as connection:
        destinations.edit(connection, hand.vault, "warehouse", {"rate": None, "concurrency": 3}, actor=ACTOR)

    seen = shown(hand)
    assert (seen.timeout, seen.rate, seen.concurrency, seen.url) == (timedelta(seconds=7), None, 3, URL)


def test_a_suspension_parks_what_is_queued_and_leaves_what_is_in_flight(hand: Hand) -> None:
    hand.lane()
    first, *_ = hand.posted(4)
    hand.claim(first)
    identity = hand.rows("SELECT id FROM destinations")[0][0]

    assert destinations.suspend(hand.store, identity, "answered 410") == 3
    assert destinations.suspend(hand.store, identity, "answered 410") == 0

    assert hand.states() == ["delivering", "parked", "parked", "parked"]
    assert hand.lane_row()[0] == 1
    assert hand.rows("SELECT DISTINCT reason FROM parked") == [("destination_suspended",)]
    assert hand.audit()[-1] == ("destination suspend", "warehouse")
    assert len([action for action, _ in hand.audit() if action == "destination suspend"]) == 1


def test_what_comes_for_a_suspended_destination_is_parked_and_stays_so_after_it_resumes(hand: Hand) -> None:
    hand.lane()
    identity = hand.rows("SELECT id FROM destinations")[0][0]
    destinations.suspend(hand.store, identity, "answered 410")
    hand.posted()

    with hand.store.begin() as connection:
        assert destinations.resume(connection, "warehouse", actor=ACTOR) == "suspended"
    hand.posted()

    assert hand.states() == ["parked", "queued"]
    assert shown(hand).state == "active"


def test_a_suspended_destination_is_not_paused_over(hand: Hand) -> None:
    identity = hand.destination()
    destinations.suspend(hand.store, identity, "answered 410")

    with pytest.raises(Conflict, match="suspended"), hand.store.begin() as connection:
        destinations.pause(connection, "warehouse", actor=ACTOR)


def test_removing_a_destination_parks_what_waits_and_ends_its_subscriptions(hand: Hand) -> None:
    hand.lane()
    hand.posted(3)
    hand.post()

    with pytest.raises(Conflict, match="3 deliveries"):
        destinations.remove(hand.store, "warehouse", actor=ACTOR)
    assert destinations.remove(hand.store, "warehouse", even_if_waiting=True, actor=ACTOR) == 3

    hand.dispatch()
    assert hand.states() == ["parked"] * 4
    assert hand.rows("SELECT DISTINCT reason FROM parked") == [("destination_removed",)]
    assert hand.rows("SELECT until_seq FROM subscriptions") == [(5,)]
    assert hand.lane_row()[0] == 0
    with pytest.raises(NotFound):
        shown(hand)


def test_parking_goes_on_where_it_was_interrupted(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    hand.lane()
    hand.posted(7)
    monkeypatch.setattr(parking, "CHUNK", 3)
    hand.sql("UPDATE destinations SET state = 'suspended'")

    assert parking.park_unfinished(hand.store) == 7
    assert parking.park_unfinished(hand.store) == 0

    assert hand.rows("SELECT seq FROM parked ORDER BY seq") == [(n,) for n in range(1, 8)]
    assert hand.nudges() == 3
    assert ParkReason.DESTINATION_SUSPENDED in str(hand.rows("SELECT reason FROM parked"))


def test_a_breaker_that_is_reset_is_closed_and_its_lanes_are_told(hand: Hand) -> None:
    hand.lane()
    hand.posted()
    hand.sql("UPDATE gates SET breaker = 'half_open', opened_at = now(), probe_token = gen_random_uuid()")

    with hand.store.begin() as connection:
        destinations.reset_breaker(connection, "warehouse", actor=ACTOR)

    assert shown(hand).breaker == "closed"
    assert hand.nudges() == 1
