"""Replay, discard and backfill: what a selection means, that numbers are true, and that lanes stay in order."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
import sqlalchemy as sa

from domain.events import place_of
from storage import backfills, destinations, replays, requests
from storage.errors import Conflict, Invalid, NotFound
from storage.events import Filter
from storage.replays import Selection
from storage.requests import Counts
from storage.transactions import Store
from tests.by_hand import ACTOR, Hand, somebody_waits_for_a_lock

PARKED = Selection()


def named(*ids: str, **where: object) -> Selection:
    return Selection(tuple(map(place_of, ids)), Filter(**where))  # type: ignore[arg-type]


def replay(hand: Hand, selection: Selection = PARKED, **how: object) -> Counts:
    return replays.run(hand.store, "replay", selection, actor=ACTOR, **how)  # type: ignore[arg-type]


def dry_run(hand: Hand, selection: Selection = PARKED, kind: replays.Kind = "replay") -> Counts:
    with hand.store.begin() as connection:
        return replays.count(connection, kind, selection)


def numbers(counts: Counts) -> tuple[int, int, int, int]:
    return counts.selected, counts.done, counts.skipped, counts.failed


def parked_lane(hand: Hand, n: int = 3, **options: object) -> list[str]:
    hand.lane("shop", "warehouse", **options)
    ids = hand.posted(n)
    hand.park(*ids)
    return ids


def test_a_replay_queues_again_what_was_parked_with_a_fresh_budget(hand: Hand) -> None:
    parked_lane(hand, 2)
    hand.sql("UPDATE deliveries SET failures = 12, attempts = 12, next_attempt_at = NULL")

    counts = replay(hand)

    assert numbers(counts) == (2, 2, 0, 0)
    assert hand.rows("SELECT DISTINCT state::text, failures, attempts, replay_id FROM deliveries") == [
        ("queued", 0, 12, counts.id)
    ]
    assert hand.rows("SELECT * FROM parked") == []
    assert hand.lane_row() == (2, 0, 1, 2)
    assert hand.nudges() == 1
    assert hand.rows("SELECT state, selected, done FROM replays") == [("finished", 2, 2)]


def test_what_is_replayed_before_its_lanes_head_lags_behind_it(hand: Hand) -> None:
    ids = parked_lane(hand, 3)
    hand.posted()
    assert hand.lane_row()[2] == 4

    replay(hand, named(ids[1]))

    assert hand.lane_row() == (2, 0, 4, 4)
    assert hand.rows("SELECT seq, lane_key FROM laggards") == [(2, 0)]


def test_a_dry_run_counts_what_the_real_run_does_and_changes_nothing(hand: Hand) -> None:
    ids = parked_lane(hand, 4)
    hand.destination("closed")
    hand.subscribe(destination="closed")
    more = hand.posted(2)
    hand.sql("UPDATE deliveries SET state = 'parked', park_reason = 'rejected' WHERE destination_id = 2")
    hand.sql("UPDATE destinations SET state = 'suspended' WHERE name = 'closed'")
    hand.sql(
        "INSERT INTO parked SELECT partner_id, destination_id, seq, received_at, 'rejected', now() FROM deliveries"
        " WHERE destination_id = 2"
    )

    foretold = dry_run(hand)
    assert hand.states().count("parked") == len(ids)
    real = replay(hand)

    assert (foretold.selected, foretold.skipped, foretold.why) == (6, 2, {"destination suspended": 2})
    assert (real.selected, real.skipped, real.why) == (foretold.selected, foretold.skipped, foretold.why)
    assert real.done == len(ids)
    assert foretold.done == 0
    assert hand.states("closed") == ["parked"] * len(more)


def test_a_selection_is_worked_off_in_small_transactions_in_sequence(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    parked_lane(hand, 7)
    monkeypatch.setattr(replays, "CHUNK", 3)
    told: list[tuple[int, list[str]]] = []

    counts = replay(hand, tell=lambda now: told.append((now.done, hand.states())))

    assert [done for done, _ in told] == [3, 6, 7]
    assert told[0][1] == ["queued"] * 3 + ["parked"] * 4
    assert numbers(counts) == (7, 7, 0, 0)
    assert hand.nudges() == 3


def test_a_rate_spreads_a_replay_over_time(hand: Hand) -> None:
    parked_lane(hand, 5)
    slept: list[float] = []

    counts = replay(hand, rate=2.0, sleep=slept.append)

    assert counts.done == 5
    assert slept == [1.0, 1.0, 0.5]


def test_a_paused_request_waits_and_a_cancelled_one_ends_where_it_is(hand: Hand) -> None:
    parked_lane(hand, 4)
    done: list[int] = []

    def steer(action: requests.Action) -> None:
        with hand.store.begin() as connection:
            requests.steer(connection, "rpl_1", action, actor=ACTOR)

    def tell(counts: Counts) -> None:
        done.append(counts.done)
        steer("pause" if counts.done == 1 else "cancel")

    def sleep(seconds: float) -> None:
        if seconds == requests.PAUSED_SECONDS:
            done.append(hand.states().count("queued"))  # still what it was
            steer("resume")

    counts = replay(hand, rate=1.0, sleep=sleep, tell=tell)

    assert done == [1, 1, 2]
    assert numbers(counts) == (2, 2, 0, 0)
    assert hand.states() == ["queued", "queued", "parked", "parked"]
    assert hand.rows("SELECT state, expected, selected, done FROM replays") == [("cancelled", 4, 2, 2)]


def test_what_is_parked_again_during_a_replay_is_not_replayed_twice(hand: Hand) -> None:
    parked_lane(hand, 4)
    hand.sql("UPDATE parked SET parked_at = now() - interval '1 minute'")

    def park_again(counts: Counts) -> None:
        if counts.done == 1:
            hand.sql("UPDATE deliveries SET state = 'parked', park_reason = 'rejected' WHERE seq = 1")
            hand.sql("UPDATE deliveries SET state = 'parked', park_reason = 'rejected' WHERE seq = 4")
            hand.sql("UPDATE parked SET parked_at = clock_timestamp() WHERE seq = 4")

    assert replay(hand, rate=1.0, sleep=lambda seconds: None, tell=park_again).done == 3


def test_a_named_event_that_is_not_parked_is_skipped_and_the_reason_told(hand: Hand) -> None:
    hand.lane()
    delivered, queued, parked = hand.posted(3)
    hand.deliver(delivered)
    hand.park(parked)
    hand.partner("lonely")
    (unwanted,) = hand.post("lonely")

    counts = replay(hand, named(delivered, queued, parked, unwanted))

    assert numbers(counts) == (4, 1, 3, 0)
    assert counts.why == {"is delivered": 1, "is queued": 1, "has no such delivery": 1}
    assert hand.states() == ["delivered", "queued", "queued"]


def test_a_delivered_event_is_sent_again_when_that_is_asked_for(hand: Hand) -> None:
    hand.lane()
    (event,) = hand.posted()
    hand.deliver(event)

    counts = replay(hand, named(event, state="delivered"))

    assert numbers(counts) == (1, 1, 0, 0)
    assert hand.rows("SELECT state::text, delivered_at FROM deliveries") == [("queued", None)]


def test_states_other_than_parked_are_selected_by_filter_too(hand: Hand) -> None:
    hand.lane()
    ids = hand.posted(3)
    hand.deliver(*ids[:2])

    assert dry_run(hand, Selection(where=Filter(state="delivered"))).selected == 2
    assert replay(hand, Selection(where=Filter(state="delivered", partner_ids=(1,)))).done == 2
    assert hand.lane_row()[0] == 3


def test_naming_an_event_that_does_not_exist_does_nothing_at_all(hand: Hand) -> None:
    ids = parked_lane(hand, 1)
    missing = Selection((*named(*ids).places, place_of(ids[0]).__class__(1, 99, place_of(ids[0]).received_at)))

    with pytest.raises(NotFound, match="no event evt_"):
        replay(hand, missing)
    with pytest.raises(NotFound):
        dry_run(hand, missing)
    assert hand.states() == ["parked"]
    assert hand.rows("SELECT id FROM replays") == []


def test_a_selection_takes_reason_destination_and_a_half_open_range(hand: Hand) -> None:
    ids = parked_lane(hand, 3)
    hand.sql("UPDATE parked SET reason = 'rejected' WHERE seq = 2")
    at = place_of(ids[0]).received_at

    def selected(**where: object) -> int:
        return dry_run(hand, Selection(where=Filter(**where))).selected  # type: ignore[arg-type]

    assert selected(reason="rejected") == 1
    assert selected(destination_ids=(1,)) == 3
    assert selected(destination_ids=(99,)) == 0
    assert selected(until=at) == 0
    assert selected(since=at, until=at + timedelta(days=1)) == 3


@pytest.mark.parametrize(
    ("kind", "where", "told"),
    [
        ("replay", {"state": "queued"}, "state 'queued'"),
        ("replay", {"state": "delivered", "reason": "rejected"}, "a reason is of what is parked"),
        ("replay", {"reason": "mood"}, "a reason is of what is parked"),
        ("discard", {"state": "delivered"}, "only what is parked"),
    ],
)
def test_a_selection_without_sense_is_refused(hand: Hand, kind: replays.Kind, where: dict[str, str], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        replays.run(hand.store, kind, Selection(where=Filter(**where)), actor=ACTOR)  # type: ignore[arg-type]


def test_a_discard_ends_what_is_parked_and_frees_the_lane_it_held(hand: Hand) -> None:
    hand.lane(on_park="hold")
    ids = hand.posted(2)
    hand.park(ids[0], holding=True)
    hand.nudges()

    counts = replays.run(hand.store, "discard", named(ids[0]), actor=ACTOR, why="it was a test")

    assert numbers(counts) == (1, 1, 0, 0)
    assert hand.states() == ["discarded", "queued"]
    assert hand.lane_row()[1] == 0
    assert hand.nudges() == 1
    assert hand.rows("SELECT details->>'why' FROM audit WHERE action = 'discard'") == [("it was a test",)]
    assert hand.audit()[-1] == ("discard", ids[0])
    assert replay(hand, named(ids[0])).why == {"is discarded": 1}
    assert replay(hand, named(ids[0], state="discarded")).done == 1


def test_a_replay_of_what_held_its_lane_takes_its_place_again(hand: Hand) -> None:
    hand.lane(on_park="hold")
    ids = hand.posted(2)
    hand.park(ids[0], holding=True)

    replay(hand)

    assert hand.lane_row() == (2, 0, 1, 2)


def test_waiting_counts_what_was_delivered_and_what_was_parked_again(hand: Hand) -> None:
    ids = parked_lane(hand, 3)
    told: list[tuple[int, int]] = []

    def work(seconds: float) -> None:
        if hand.states()[0] == "queued":
            hand.deliver(ids[0], ids[1])
        else:
            hand.park(ids[2])

    counts = replay(hand, wait=True, sleep=work, tell=lambda now: told.append((now.done, now.failed)))

    assert numbers(counts) == (3, 2, 0, 1)
    assert told[-2:] == [(2, 0), (2, 1)]
    assert hand.rows("SELECT done, failed FROM replays") == [(2, 1)]


def test_an_interrupted_replay_leaves_a_row_that_says_how_far_it_came(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    parked_lane(hand, 4)
    monkeypatch.setattr(replays, "CHUNK", 2)

    def interrupt(counts: Counts) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(hand, tell=interrupt)

    assert hand.rows("SELECT state, selected, done FROM replays") == [("finished", 2, 2)]
    assert hand.states() == ["queued", "queued", "parked", "parked"]


def test_two_replays_of_the_same_events_queue_each_of_them_once(hand: Hand, database_url: str) -> None:
    """The first holds the lane's lock while the second has already chosen the same deliveries."""
    parked_lane(hand, 3)
    other = Store(database_url, "second person")
    results: list[Counts] = []
    second = threading.Thread(target=lambda: results.append(replays.run(other, "replay", PARKED, actor="second")))
    with hand.store._engine.begin() as connection:
        connection.execute(sa.text("SELECT FROM lanes FOR NO KEY UPDATE"))
        second.start()
        somebody_waits_for_a_lock(connection)
        connection.execute(sa.text("UPDATE deliveries SET state = 'queued', park_reason = NULL WHERE seq = 1"))
        connection.execute(sa.text("UPDATE lanes SET waiting = waiting + 1"))
    second.join()
    other.close()

    assert numbers(results[0]) == (3, 2, 1, 0)
    assert results[0].why == {"changed meanwhile": 1}
    assert hand.lane_row()[0] == 3


def test_a_backfill_brings_stored_events_to_a_new_destination_in_order_and_only_once(hand: Hand) -> None:
    hand.partner()
    hand.destination()
    hand.posted(3, kind="order.paid")
    hand.posted(2, kind="refund")
    hand.subscribe(types=["order.*"])
    hand.posted(1, kind="order.paid")

    with hand.store.begin() as connection:
        foretold = backfills.count(connection, "shop", "warehouse", backfills.Span())
    counts = backfills.run(hand.store, "shop", "warehouse", backfills.Span(), actor=ACTOR, rate=2, sleep=lambda s: None)
    again = backfills.run(hand.store, "shop", "warehouse", backfills.Span(), actor=ACTOR)

    assert foretold.selected == 3
    assert numbers(counts) == (3, 3, 0, 0)
    assert again.selected == 0
    assert hand.rows("SELECT seq, state::text, lane_key, replay_id FROM deliveries ORDER BY seq") == [
        (seq, "queued", 0, None) for seq in (1, 2, 3, 6)
    ]
    assert hand.lane_row() == (4, 0, 6, 6)
    assert hand.rows("SELECT seq FROM laggards ORDER BY seq") == [(1,), (2,), (3,)]
    assert hand.nudges() >= 2


def test_a_backfill_leaves_to_dispatch_what_an_earlier_version_covers(hand: Hand) -> None:
    hand.lane()
    hand.post(n=2)
    hand.sql("UPDATE subscriptions SET until_seq = 3")
    hand.post(n=2)
    hand.subscribe()

    counts = backfills.run(hand.store, "shop", "warehouse", backfills.Span(), actor=ACTOR)
    hand.dispatch()

    assert counts.done == 2
    assert hand.rows("SELECT seq FROM deliveries ORDER BY seq") == [(1,), (2,), (3,), (4,)]


def test_a_backfill_needs_a_subscription_and_a_destination_that_takes_events(hand: Hand) -> None:
    hand.partner()
    identity = hand.destination()
    with pytest.raises(Conflict, match="not subscribed"):
        backfills.run(hand.store, "shop", "warehouse", backfills.Span(), actor=ACTOR)
    hand.subscribe()
    destinations.suspend(hand.store, identity, "answered 410")
    with pytest.raises(Conflict, match="suspended"):
        backfills.run(hand.store, "shop", "warehouse", backfills.Span(), actor=ACTOR)
