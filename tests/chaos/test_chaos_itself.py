"""The chaos suite's own parts: plans, lines, and a checker that sees what it should."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tests.acceptance.receiver import Arrival
from tests.chaos import checker
from tests.chaos.book import Book, parse
from tests.chaos.checker import Seen
from tests.chaos.desk import Deed
from tests.chaos.faults import FAULTS, SPANS
from tests.chaos.line import Line
from tests.chaos.people import Ban
from tests.chaos.plan import draw
from tests.chaos.stage import Happened
from tests.chaos.town import SUBSCRIPTIONS, Mail, Posted

NOTHING: dict[str, Any] = {name: [] for name in Book.__slots__} | {"metrics": {}}
LOSS = Happened("worker-killed", frozenset({"worker"}), 10.0, 11.0)
EMPTIED = Happened("valkey-emptied", frozenset({"valkey"}), 10.0, 11.0)


def an_arrival(sequence: int, began: float, ended: float | None, status: int | None = 200, attempt: int = 1) -> Arrival:
    """A request of acme's to ledger."""
    said = {"webhook-id": f"evt_{sequence}", "hookyard-partner": "acme"}
    said |= {"hookyard-sequence": str(sequence), "hookyard-attempt": str(attempt)}
    return Arrival("/ledger", list(said.items()), b"{}", began, ended, status)


def a_subscription(ordering: str = "partner", from_seq: int = 1, until_seq: int | None = None) -> SimpleNamespace:
    named = {"partner": "acme", "destination": "ledger", "types": None}
    return SimpleNamespace(ordering=ordering, from_seq=from_seq, until_seq=until_seq, **named)


def seen(*arrivals: Arrival, happened: tuple[Happened, ...] = (), **book: list[Any]) -> Seen:
    """Of a strict lane, unless the book has something else."""
    if arrivals and not book:
        book["subscriptions"] = [a_subscription()]
        book["events"] = [SimpleNamespace(partner="acme", seq=n, type="chaos.calm", body=b"{}") for n in (1, 2)]
    return Seen(list(arrivals), Mail(""), list(happened), Book(**NOTHING | book))


def test_a_seed_is_a_plan() -> None:
    plan = draw(3, 25, sorted(FAULTS))
    assert plan == draw(3, 25, sorted(FAULTS))
    assert plan != draw(4, 25, sorted(FAULTS))
    assert all(0 < strike.at_seconds < 25 for strike in plan.strikes)


def test_every_fault_asked_for_strikes_before_one_strikes_again() -> None:
    plan = draw(1, 25, ["worker-killed", "valkey-emptied", "table-locked"])
    assert set(Counter(strike.fault for strike in plan.strikes).values()) <= {1, 2}
    assert len({strike.fault for strike in plan.strikes}) == 3


def test_a_fault_that_takes_a_while_begins_at_once_and_has_its_time() -> None:
    plan = draw(1, 8, ["worker-killed", "valkey-emptied", "table-locked"], SPANS)
    assert (plan.strikes[0].fault, plan.seconds) == ("table-locked", SPANS["table-locked"])


def test_order_and_overlap_are_seen() -> None:
    fine = seen(an_arrival(1, 1.0, 1.1), an_arrival(2, 1.1, 1.2))
    assert (list(checker.arrivals_are_in_order(fine)), list(checker.never_two_in_flight(fine))) == ([], [])
    assert list(checker.arrivals_are_in_order(seen(an_arrival(2, 1.0, 1.1), an_arrival(1, 1.2, 1.3))))
    assert list(checker.never_two_in_flight(seen(an_arrival(1, 1.0, 1.5), an_arrival(2, 1.1, 1.2))))


def test_a_frozen_workers_exchange_ends_with_its_time_and_anybody_elses_with_its_connection() -> None:
    both = (an_arrival(1, 10.0, 13.0, None), an_arrival(1, 12.0, 12.1, attempt=2))
    assert list(checker.never_two_in_flight(seen(*both)))
    assert list(checker.never_two_in_flight(seen(*both, happened=(EMPTIED,))))
    assert list(checker.never_two_in_flight(seen(*both, happened=(LOSS,)))) == []


def test_a_repeat_is_explained_by_a_lost_worker_once_and_by_an_emptied_valkey_never() -> None:
    again = [an_arrival(1, 10.0 + n, 10.1 + n, attempt=n + 1) for n in range(3)]
    assert len(list(checker.repeats_after_success_are_explained(seen(*again[:2], happened=(EMPTIED,))))) == 1
    assert list(checker.repeats_after_success_are_explained(seen(*again[:2], happened=(LOSS,)))) == []
    assert len(list(checker.repeats_after_success_are_explained(seen(*again, happened=(LOSS,))))) == 1


def test_a_repeat_that_failed_is_retried_like_any_other() -> None:
    lost, failed, retried = (an_arrival(1, 10.0 + n, 10.1 + n, (200, 500, 200)[n], n + 1) for n in range(3))
    assert list(checker.repeats_after_success_are_explained(seen(lost, failed, retried, happened=(LOSS,)))) == []


def test_a_request_without_a_record_and_a_record_without_a_request_are_seen() -> None:
    row = SimpleNamespace(partner="acme", destination="ledger", seq=1, number=1, outcome="success", status=200)
    assert list(checker.every_request_is_on_record(seen(an_arrival(1, 1.0, 1.1), attempts=[row]))) == []
    assert list(checker.every_request_is_on_record(seen(an_arrival(1, 1.0, 1.1))))
    assert list(checker.every_record_was_a_request(seen(attempts=[row])))


def test_a_total_may_stay_below_the_database_only_where_a_loss_explains_it() -> None:
    rows = [SimpleNamespace(partner="acme", seq=n) for n in (1, 2, 3)]

    def judged(total: int, *happened: Happened) -> list[str]:
        metrics: Any = parse(f'hookyard_events_accepted_total{{partner="acme"}} {total}.0\n')
        return list(checker.totals_equal_the_database(seen(happened=happened, events=rows, metrics=metrics)))

    killed = Happened("ingest-killed", frozenset({"ingest"}), 1.0, 1.0)
    assert (judged(3), judged(2, killed)) == ([], [])
    assert judged(2)
    assert judged(2, LOSS)
    assert judged(4, killed)


async def test_a_line_passes_on_falls_silent_and_is_cut() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while word := await reader.read(100):
            writer.write(word)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, Line(server.sockets[0].getsockname()[1]) as line:
        reader, writer = await asyncio.open_connection("127.0.0.1", line.port)
        writer.write(b"one")
        assert await reader.read(100) == b"one"
        line.fall_silent()
        writer.write(b"two")
        answer = asyncio.create_task(reader.read(100))
        assert not (await asyncio.wait([answer], timeout=0.1))[0]
        line.speak()
        assert await answer == b"two"
        line.cut()
        assert await reader.read(100) == b""
        writer.close()


def test_a_strict_order_neither_begins_nor_ends_beside_another() -> None:
    def judged(*orders: str) -> list[str]:
        versions = [a_subscription(orders[0], 1, 2), a_subscription(orders[1], 2)]
        events = [SimpleNamespace(partner="acme", seq=n, type="chaos.calm", body=b"{}") for n in (1, 2)]
        both = (an_arrival(1, 1.0, 1.5), an_arrival(2, 1.1, 1.2))
        return list(
            checker.a_strict_order_begins_and_ends_with_an_empty_lane(
                seen(*both, events=events, subscriptions=versions)
            )
        )

    assert (judged("partner", "partner"), judged("none", "key"), judged("key", "none")) == ([], [], [])
    assert judged("none", "partner")
    assert judged("partner", "none")
    assert judged("partner", "key")


def test_an_order_is_of_the_subscription_that_took_the_event() -> None:
    versions = [a_subscription("none", 1, 2), a_subscription("partner", 2)]
    events = [SimpleNamespace(partner="acme", seq=n, type="chaos.calm", body=b"{}") for n in (1, 2, 3)]
    beside_one, beside_two = (an_arrival(1, 1.0, 1.5), an_arrival(3, 1.1, 1.2)), (an_arrival(2, 1.0, 1.5),)
    told: dict[str, Any] = {"events": events, "subscriptions": versions}
    assert list(checker.never_two_in_flight(seen(*beside_one, **told))) == []
    assert list(checker.never_two_in_flight(seen(*beside_two, *beside_one[1:], **told)))


def test_what_is_replayed_is_no_repeat_and_has_an_order_of_its_own() -> None:
    newer, older = an_arrival(2, 1.0, 1.1), an_arrival(1, 1.2, 1.3)
    older.replay = "rpl_1"
    assert list(checker.arrivals_are_in_order(seen(newer, older))) == []
    assert list(checker.repeats_after_success_are_explained(seen(an_arrival(1, 0.8, 0.9), older))) == []
    newer.replay = "rpl_1"
    assert list(checker.arrivals_are_in_order(seen(newer, older)))


def test_a_command_fails_only_where_the_database_was_hurt() -> None:
    failed = Deed(("destination", "resume", "slow"), 10.5, 10.6, 1, "", "the database is away\n")
    cut = Happened("database-cut", frozenset({"postgres"}), 10.0, 11.0)
    assert list(checker.commands_end_as_promised(replace(seen(happened=(cut,)), deeds=[failed]))) == []
    assert list(checker.commands_end_as_promised(replace(seen(happened=(LOSS,)), deeds=[failed])))


def test_after_an_edit_the_old_is_over_soon() -> None:
    ban = Ban("ledger is paused", lambda arrival: arrival.place == "ledger", since=1.0, until=9.0)
    judged = [
        list(checker.edits_are_in_force_soon(replace(seen(an_arrival(1, at, at + 0.1)), bans=[ban])))
        for at in (1.5, 6.0, 9.5)
    ]
    assert [bool(found) for found in judged] == [False, True, False]


def test_a_change_of_a_subscription_has_a_right_side() -> None:
    known = a_subscription()
    changed = Deed(("subscribe", "kite", "varied"), 2.0, 2.1, 0, '{"from_sequence": 5}', "")

    def judged(sequence: int, sent_at: float) -> list[str]:
        event = Posted("kite", "one", b"{}", sent_at, acked_at=sent_at + 0.1, sequence=sequence)
        pairs = [
            SimpleNamespace(**vars(known) | {"partner": p, "destination": d, "ordering": o})
            for (p, d), o in SUBSCRIPTIONS.items()
        ]
        told = replace(seen(subscriptions=pairs), mail=Mail("", [event]), deeds=[changed])
        return list(checker.subscribers_are_those_of_the_moment_of_acceptance(told))

    assert (judged(4, 1.0), judged(5, 3.0)) == ([], [])
    assert judged(5, 1.0)
    assert judged(4, 3.0)
