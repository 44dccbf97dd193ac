"""Events in listings: what state they show, in which order, and what is found of them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from domain.events import place_of
from domain.globs import pattern_of
from storage import destinations, events, partners
from storage.errors import NotFound
from storage.events import Filter
from tests.by_hand import ACTOR, Hand


def listed(hand: Hand, wanted: Filter | None = None, limit: int = 50) -> list[events.Listed]:
    with hand.store.begin() as connection:
        return events.listed(connection, wanted or Filter(), limit=limit)


def story(hand: Hand) -> dict[str, str]:
    """One event in each state."""
    hand.lane()
    delivered, parked, discarded, delivering, queued = hand.posted(5)
    hand.deliver(delivered)
    hand.park(parked, discarded)
    hand.sql("UPDATE deliveries SET state = 'discarded', park_reason = NULL WHERE seq = 3")
    hand.sql("DELETE FROM parked WHERE seq = 3")
    hand.claim(delivering)
    (received,) = hand.post()
    return {
        "delivered": delivered,
        "parked": parked,
        "discarded": discarded,
        "delivering": delivering,
        "queued": queued,
        "received": received,
    }


def test_every_state_is_shown_and_can_be_asked_for(hand: Hand) -> None:
    by_state = story(hand)

    assert {row.state: row.id for row in listed(hand)} == by_state
    for state, event in by_state.items():
        assert [row.id for row in listed(hand, Filter(state=state))] == [event]
        with hand.store.begin() as connection:
            assert events.find(connection, event).state == state


def test_an_event_shows_the_least_finished_of_its_deliveries(hand: Hand) -> None:
    hand.lane()
    hand.destination("second")
    hand.subscribe(destination="second")
    (event,) = hand.posted()
    hand.sql("UPDATE deliveries SET state = 'delivered' WHERE destination_id = 1")

    assert listed(hand)[0].state == "queued"
    with hand.store.begin() as connection:
        found = events.find(connection, event)
    assert [(delivery.destination, delivery.state) for delivery in found.deliveries] == [
        ("second", "queued"),
        ("warehouse", "delivered"),
    ]


def test_an_event_that_nobody_subscribed_to_is_delivered_with_no_deliveries(hand: Hand) -> None:
    hand.partner()
    (event,) = hand.posted()

    assert listed(hand)[0].state == "delivered"
    with hand.store.begin() as connection:
        assert events.find(connection, event).deliveries == ()


def test_the_newest_come_first_across_partners_and_pages_leave_no_hole(hand: Hand) -> None:
    for name in ("a", "b", "c"):
        hand.partner(name)
    posted = [hand.post(name)[0] for name in ("a", "b", "a", "c", "b", "b", "a")]

    whole = [row.id for row in listed(hand)]
    assert whole == sorted(posted, reverse=True)
    assert [row.id for row in listed(hand, limit=2)] == whole[:2]
    paged = []
    before = None
    with hand.store.begin() as connection:
        while page := events.listed(connection, Filter(), limit=2, before=before):
            paged += [row.id for row in page]
            before = page[-1].place
    assert paged == whole


def test_events_are_selected_by_partner_type_time_and_destination(hand: Hand) -> None:
    hand.lane()
    hand.partner("other")
    first, second = hand.posted(kind="order.paid")[0], hand.posted(kind="refund")[0]
    hand.post("other", kind="order.paid")
    other = hand.rows("SELECT id FROM partners WHERE name = 'other'")[0][0]
    at = place_of(second).received_at

    def ids(**wanted: object) -> list[str]:
        return [row.id for row in listed(hand, Filter(**wanted))]  # type: ignore[arg-type]

    assert ids(partner_ids=(other,)) == [hand_id for hand_id in ids() if hand_id not in (first, second)]
    assert ids(pattern=pattern_of(["order.*"]), partner_ids=(1,)) == [first]
    assert ids(since=at, partner_ids=(1,)) == [second] or place_of(first).received_at == at
    assert second not in ids(until=at)
    assert ids(destination_ids=(1,)) == [second, first]
    assert [(row.destination, row.state) for row in listed(hand, Filter(destination_ids=(1,), state="queued"))] == [
        ("warehouse", "queued")
    ] * 2
    assert ids(destination_ids=(1,), state="parked") == []


def test_the_body_is_what_was_received(hand: Hand) -> None:
    hand.partner()
    (event,) = hand.post(body=bytes(range(256)))

    with hand.store.begin() as connection:
        found = events.content(connection, event)
        shown = events.find(connection, event)

    assert found.body == bytes(range(256))
    assert found.headers == [(b"content-type", b"application/json")]
    assert (shown.body_bytes, shown.content_type) == (256, "application/json")


@pytest.mark.parametrize("text", ["no-such-event", "evt_" + "0" * 29, ""])
def test_what_is_no_event_is_not_found(hand: Hand, text: str) -> None:
    with pytest.raises(NotFound), hand.store.begin() as connection:
        events.find(connection, text)


def test_the_attempts_of_an_event_are_told_in_order(hand: Hand) -> None:
    hand.lane()
    (event,) = hand.posted()
    for number, status in ((2, 200), (1, 500)):
        hand.sql(
            "INSERT INTO attempts (partner_id, destination_id, seq, number, received_at, started_at, duration_ms,"
            " status, outcome, error) SELECT partner_id, destination_id, seq, :number, received_at, now(), 5, :status,"
            " 'http_error', 'x' FROM deliveries",
            number=number,
            status=status,
        )

    with hand.store.begin() as connection:
        (delivery,) = events.find(connection, event).deliveries
    assert [(attempt.number, attempt.status) for attempt in delivery.attempts] == [(1, 500), (2, 200)]


def test_what_is_parked_is_listed_page_by_page_by_partner_and_sequence(hand: Hand) -> None:
    hand.lane()
    ids = hand.posted(5)
    hand.park(*ids[:4])
    hand.sql("UPDATE parked SET reason = 'rejected' WHERE seq = 2")

    with hand.store.begin() as connection:
        page, after = events.parked(connection, Filter(), limit=3)
        rest, end = events.parked(connection, Filter(), limit=3, after=after)
        rejected, _ = events.parked(connection, Filter(reason="rejected"))

    assert [row.id for row in page + rest] == ids[:4]
    assert end is None
    assert [(row.id, row.park_reason, row.destination) for row in rejected] == [(ids[1], "rejected", "warehouse")]


def test_the_events_of_a_removed_partner_and_destination_stay_findable_by_name(hand: Hand) -> None:
    hand.lane()
    (event,) = hand.posted()
    destinations.remove(hand.store, "warehouse", even_if_waiting=True, actor=ACTOR)
    with hand.store.begin() as connection:
        partners.remove(connection, "shop", even_if_waiting=True, actor=ACTOR)

    with hand.store.begin() as connection:
        wanted = Filter(
            partner_ids=tuple(partners.ids_named(connection, "shop")),
            destination_ids=tuple(destinations.ids_named(connection, "warehouse")),
        )
        assert [row.id for row in events.parked(connection, wanted)[0]] == [event]


def test_a_range_in_the_past_finds_what_was_received_then(hand: Hand) -> None:
    hand.partner()
    (event,) = hand.post()
    hand.age(timedelta(hours=2))
    (new,) = hand.post()
    now = hand.now()

    found = listed(hand, Filter(since=now - timedelta(hours=3), until=now - timedelta(hours=1)))

    assert [row.place.sequence for row in found] == [place_of(event).sequence]
    assert [row.id for row in listed(hand, Filter(since=now - timedelta(hours=1)))] == [new]
