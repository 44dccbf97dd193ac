"""The chaos suite's own parts: plans, lines, and a checker that sees what it should."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

from tests.acceptance.receiver import Arrival
from tests.chaos import checker
from tests.chaos.book import Book, parse
from tests.chaos.checker import Seen
from tests.chaos.faults import FAULTS
from tests.chaos.line import Line
from tests.chaos.plan import draw
from tests.chaos.stage import Happened
from tests.chaos.town import Mail

NOTHING: dict[str, Any] = {name: [] for name in Book.__slots__} | {"metrics": {}}
LOSS = Happened("worker-killed", frozenset({"worker"}), 10.0, 11.0)
EMPTIED = Happened("valkey-emptied", frozenset({"valkey"}), 10.0, 11.0)


def an_arrival(sequence: int, began: float, ended: float | None, status: int | None = 200, attempt: int = 1) -> Arrival:
    """A request of acme's to ledger."""
    said = {"webhook-id": f"evt_{sequence}", "hookyard-partner": "acme"}
    said |= {"hookyard-sequence": str(sequence), "hookyard-attempt": str(attempt)}
    return Arrival("/ledger", list(said.items()), b"{}", began, ended, status)


def seen(*arrivals: Arrival, happened: tuple[Happened, ...] = (), **book: list[Any]) -> Seen:
    return Seen(list(arrivals), Mail([], []), list(happened), Book(**NOTHING | book))


def test_a_seed_is_a_plan() -> None:
    plan = draw(3, 25, sorted(FAULTS))
    assert plan == draw(3, 25, sorted(FAULTS))
    assert plan != draw(4, 25, sorted(FAULTS))
    assert all(0 < strike.at_seconds < 25 for strike in plan.strikes)


def test_every_fault_asked_for_strikes_before_one_strikes_again() -> None:
    plan = draw(1, 25, ["worker-killed", "valkey-emptied", "table-locked"])
    assert set(Counter(strike.fault for strike in plan.strikes).values()) <= {1, 2}
    assert len({strike.fault for strike in plan.strikes}) == 3


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
    rows = [SimpleNamespace(partner="acme", last_seq=3, cursor=3)]

    def judged(total: int, *happened: Happened) -> list[str]:
        metrics: Any = parse(f'hookyard_events_accepted_total{{partner="acme"}} {total}.0\n')
        return list(checker.totals_equal_the_database(seen(happened=happened, heads=rows, metrics=metrics)))

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
