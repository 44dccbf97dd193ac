"""The order of locks that `storage.partners` gives: whoever waits for a row holds none of those that come after it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from storage import destinations, partners, subscriptions
from storage.transactions import Store
from tests.by_hand import ACTOR, Hand, somebody_waits_for_a_lock

CONFIGURATION = ("partners", "destinations", "subscriptions", "installation")
Command = Callable[[Store], object]


def remove_partner(store: Store) -> object:
    return store.run(lambda now: partners.remove(now, "shop", even_if_waiting=True, actor=ACTOR))


def remove_destination(store: Store) -> object:
    return destinations.remove(store, "warehouse", even_if_waiting=True, actor=ACTOR)


def subscribe_otherwise(store: Store) -> object:
    return store.run(lambda now: subscriptions.subscribe(now, "shop", "warehouse", types=["refund"], actor=ACTOR))


def unsubscribe(store: Store) -> object:
    return store.run(lambda now: subscriptions.unsubscribe(now, "shop", "warehouse", actor=ACTOR))


def resume(store: Store) -> object:
    return store.run(lambda now: destinations.resume(now, "warehouse", actor=ACTOR))


def reset_breaker(store: Store) -> object:
    return store.run(lambda now: destinations.reset_breaker(now, "warehouse", actor=ACTOR))


def while_held(hand: Hand, statement: str, command: Command, look: Callable[[sa.Connection], None]) -> None:
    """Looks at what else is locked while the command waits for the rows that the statement locks."""
    url = hand.store._engine.url.render_as_string(False)
    store, other = Store(url, "hookyard command"), Store(url, "hookyard onlooker")
    done: list[object] = []
    running = threading.Thread(target=lambda: done.append(command(store)))
    with hand.store.begin() as holder, other.begin() as onlooker:
        holder.execute(sa.text(statement))
        running.start()
        somebody_waits_for_a_lock(onlooker)
        look(onlooker)
    running.join()
    assert len(done) == 1
    store.close()
    other.close()


def configuration_is_free(connection: sa.Connection) -> None:
    for table in CONFIGURATION:
        connection.execute(sa.text(f"SELECT FROM {table} FOR UPDATE NOWAIT"))


@pytest.mark.parametrize("command", [remove_partner, remove_destination, subscribe_otherwise, unsubscribe])
def test_whoever_waits_for_a_lane_holds_nothing_of_the_configuration(hand: Hand, command: Command) -> None:
    hand.lane()

    while_held(hand, "SELECT FROM lanes FOR UPDATE", command, configuration_is_free)


@pytest.mark.parametrize("command", [resume, reset_breaker])
def test_whoever_waits_for_a_gate_holds_nothing_of_the_configuration(hand: Hand, command: Command) -> None:
    hand.lane()
    with hand.store.begin() as connection:
        destinations.pause(connection, "warehouse", actor=ACTOR)

    while_held(hand, "SELECT FROM gates FOR UPDATE", command, configuration_is_free)


def test_a_partner_s_lanes_are_locked_in_their_order_wherever_they_lie_in_the_table(hand: Hand) -> None:
    hand.lane()
    first = hand.rows("SELECT id FROM destinations")[0][0]
    hand.destination("ledger")
    hand.subscribe("shop", "ledger")
    hand.sql("UPDATE lanes SET tail_seq = 0 WHERE destination_id = :first", first=first)  # it lies behind the other now
    for index in ("indexscan", "bitmapscan"):  # as where a plan reads the table from end to end
        hand.sql(
            f"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET enable_{index} = off', current_database()); END $$"
        )

    def the_other_is_free(connection: sa.Connection) -> None:
        query = sa.text("SELECT FROM lanes WHERE destination_id <> :first FOR UPDATE NOWAIT")
        assert len(connection.execute(query, {"first": first}).all()) == 1

    held = f"SELECT FROM lanes WHERE destination_id = {first} FOR UPDATE"
    while_held(hand, held, remove_partner, the_other_is_free)
