"""Subscriptions: an event is for those who were subscribed when it was accepted."""

from __future__ import annotations

import threading

import pytest

from storage import destinations, subscriptions
from storage.errors import Conflict, NotFound
from tests.by_hand import ACTOR, Hand, somebody_waits_for_a_lock


def test_a_destination_receives_what_is_accepted_after_it_was_subscribed(hand: Hand) -> None:
    hand.partner()
    hand.destination()
    hand.post(n=2)

    hand.subscribe()
    hand.post(n=3)
    hand.dispatch()

    assert hand.rows("SELECT seq FROM deliveries ORDER BY seq") == [(3,), (4,), (5,)]


def test_what_was_accepted_before_unsubscribing_is_still_for_the_destination(hand: Hand) -> None:
    hand.lane()
    hand.post(n=2)

    with hand.store.begin() as connection:
        subscriptions.unsubscribe(connection, "shop", "warehouse", actor=ACTOR)
    hand.post(n=2)
    hand.dispatch()

    assert hand.rows("SELECT seq FROM deliveries ORDER BY seq") == [(1,), (2,)]
    with pytest.raises(Conflict, match="not subscribed"), hand.store.begin() as connection:
        subscriptions.unsubscribe(connection, "shop", "warehouse", actor=ACTOR)


def test_new_types_make_a_new_version_and_the_same_ones_change_nothing(hand: Hand) -> None:
    hand.lane()
    hand.post(kind="order.paid")

    with hand.store.begin() as connection:
        changed = subscriptions.subscribe(connection, "shop", "warehouse", types=["refund"], actor=ACTOR)
    with hand.store.begin() as connection:
        again = subscriptions.subscribe(connection, "shop", "warehouse", types=["refund"], actor=ACTOR)
    hand.post(kind="order.paid")
    hand.post(kind="refund")
    hand.dispatch()

    assert (changed.outcome, again.outcome) == ("changed", "unchanged")
    assert hand.rows("SELECT from_seq, until_seq FROM subscriptions ORDER BY id") == [(1, 2), (2, None)]
    assert hand.rows("SELECT seq FROM deliveries ORDER BY seq") == [(1,), (3,)]


def test_a_glob_takes_in_postgresql_what_it_says(hand: Hand) -> None:
    hand.partner()
    hand.destination()
    hand.subscribe(types=["order.*", "a?c", "100% (really) [x]\\^$|{1}+", "ä*"])
    taken = ["order.created", "order.", "order.a.b\nc", "abc", "a\nc", "100% (really) [x]\\^$|{1}+", "äöü"]
    refused = ["reorder.x", "orderXcreated", "Order.created", "ac", "abbc", "100% (really) [x]\\^$|{1}", "", "Ä"]
    for kind in taken + refused:
        hand.post(kind=kind)
    hand.post(kind=None)

    hand.dispatch()

    assert hand.rows("SELECT seq FROM deliveries ORDER BY seq") == [(n + 1,) for n in range(len(taken))]


def test_order_by_key_needs_a_partner_that_has_one(hand: Hand) -> None:
    hand.partner()
    hand.destination()
    with pytest.raises(Conflict, match="partner shop has no order key: give it one"):
        hand.subscribe(ordering="key")


def test_nobody_is_subscribed_to_what_is_not_there(hand: Hand) -> None:
    hand.partner()
    with pytest.raises(NotFound, match="no destination 'warehouse'"):
        hand.subscribe()


def test_an_event_accepted_while_somebody_subscribes_is_for_him_or_before_him(hand: Hand) -> None:
    """The subscription is held open, with the head locked: ingest has to wait for it."""
    hand.partner()
    hand.destination()
    hand.post()
    with hand.store._engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        subscriptions.subscribe(connection, "shop", "warehouse", actor=ACTOR)
        other = Hand(type(hand.store)(hand.store._engine.url.render_as_string(False)), hand.vault, hand.token)
        sender = threading.Thread(target=other.post)
        sender.start()
        somebody_waits_for_a_lock(connection)
        connection.commit()
        sender.join()
    other.store.close()
    hand.dispatch()

    assert hand.rows("SELECT from_seq FROM subscriptions") == [(2,)]
    assert hand.rows("SELECT seq FROM deliveries") == [(2,)]


def test_a_removed_destination_is_not_subscribed_to(hand: Hand) -> None:
    hand.partner()
    hand.destination()
    destinations.remove(hand.store, "warehouse", actor=ACTOR)
    with pytest.raises(NotFound, match="no destination"):
        hand.subscribe()
