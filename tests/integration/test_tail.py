"""Attempts as they are recorded: each once, none missing, whatever the order in which transactions end."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa

from storage import attempts
from storage.attempts import Tail
from storage.schema import migrate
from storage.secrets import Vault
from storage.transactions import Store
from tests.by_hand import Hand
from tests.servers import Servers
from tests.typed import environment, typed

RECORD = sa.text("""
INSERT INTO attempts (partner_id, destination_id, seq, number, received_at, started_at, duration_ms, status, outcome)
SELECT partner_id, destination_id, seq, :number, received_at, now(), 5, 200, 'success' FROM deliveries ORDER BY seq
""")


def record(hand: Hand, number: int = 1) -> None:
    """An attempt of every delivery was recorded just now."""
    hand.sql(RECORD.text, number=number)


def seen(hand: Hand, tail: Tail) -> list[tuple[str, int, int]]:
    """What is new: destination, sequence, number."""
    with hand.store.begin() as connection:
        found, _ = tail.more(connection)
    return [(one.destination, one.place.sequence, one.attempt.number) for one in found]


def test_each_attempt_is_seen_once_page_by_page(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "PAGE", 2)
    hand.lane()
    hand.posted(3)
    record(hand, 1)
    tail = Tail(hand.now())
    assert seen(hand, tail) == []
    record(hand, 2)

    assert [seen(hand, tail) for _ in range(3)] == [
        [("warehouse", 1, 2), ("warehouse", 2, 2)],
        [("warehouse", 3, 2)],
        [],
    ]
    record(hand, 3)
    assert [one for _ in range(9) for one in seen(hand, tail)] == [("warehouse", seq, 3) for seq in (1, 2, 3)]


def test_what_commits_late_is_seen_late(hand: Hand, database_url: str) -> None:
    hand.lane()
    hand.posted()
    tail = Tail(hand.now())
    other = Store(database_url, "hookyard test")
    with other.begin() as connection:
        connection.execute(RECORD, {"number": 1})
        record(hand, 2)
        assert seen(hand, tail) == [("warehouse", 1, 2)]
    other.close()
    assert [seen(hand, tail), seen(hand, tail)] == [[("warehouse", 1, 1)], []]


def test_a_tail_is_of_whom_it_was_asked_for(hand: Hand) -> None:
    hand.lane()
    hand.lane("mill", "depot")
    hand.posted()
    hand.posted(partner="mill")
    since = hand.now()
    record(hand)
    with hand.store.begin() as connection:
        ids = {row.name: (row.id,) for row in connection.execute(sa.text("SELECT id, name FROM destinations"))}

    assert seen(hand, Tail(since, destinations=ids["depot"])) == [("depot", 1, 1)]
    assert seen(hand, Tail(since, partners=(999,))) == []
    assert seen(hand, Tail(since + timedelta(hours=1))) == []


def test_the_command_goes_on_where_it_was_when_the_database_was_away(own_servers: Servers, tmp_path: Path) -> None:
    url = own_servers.url_of("hookyard")
    migrate(url)
    hand = Hand(Store(url), Vault([b"k" * 32]), str(uuid4()))
    hand.lane()
    hand.posted()
    record(hand, 1)
    with typed("tail", "--destination", "warehouse", "--since", "1h", "--json", env=environment(url, tmp_path)) as tail:
        tail.until('"number": 1')
        hand.store.close()
        own_servers.stop_postgres()
        tail.until("waiting for it")
        own_servers.start_postgres()
        record(hand, 2)
        lines = tail.until('"number": 2').splitlines()
    hand.store.close()

    told = [json.loads(line) for line in lines if line.startswith("{")]
    assert [(one["partner"], one["sequence"], one["destination"], one["number"]) for one in told] == [
        ("shop", 1, "warehouse", 1),
        ("shop", 1, "warehouse", 2),
    ]
    assert lines.count("note: the database answers again") == 1
