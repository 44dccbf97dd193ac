"""The requests of people that take a while: a row of `replays` with their numbers, in the audit from the beginning.

The numbers are saved beside the work, so an interrupted command leaves a row that says how far it came.
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import TracebackType
from typing import Any, Literal

import sqlalchemy as sa

from domain.values import shown
from storage import audit
from storage.errors import Conflict, NotFound, StorageUnavailable
from storage.transactions import Store

Kind = Literal["replay", "discard", "backfill"]
Action = Literal["pause", "resume", "cancel"]
STATES: Mapping[Action, str] = {"pause": "paused", "resume": "running", "cancel": "cancelled"}
PREFIX = "rpl_"
NAME = re.compile(PREFIX + "[0-9]{1,18}")

BEGIN = sa.text("""
INSERT INTO replays (kind, actor, selection, why, rate, expected)
VALUES (:kind, :actor, CAST(:selection AS jsonb), :why, :rate, :expected)
RETURNING id
""")
EXISTS = sa.text("SELECT EXISTS (SELECT FROM replays WHERE id = :id)")
ADVANCE = sa.text("""
UPDATE replays SET selected = selected + :selected, done = done + :done, skipped = skipped + :selected - :done,
                   beat_at = now()
WHERE id = :id
""")
# Whoever works at it beats at least once a second, or per delivery where its rate is lower.
CUT_OFF = "(finished_at IS NULL AND beat_at < now() - greatest(interval '1 minute', 3 / rate * interval '1 s'))"
ROWS = f"""
SELECT id, kind, actor, CASE WHEN {CUT_OFF} THEN 'interrupted' ELSE state END AS state, selection, why, rate,
       expected, selected, done, skipped, failed, created_at, finished_at
FROM replays
"""
LISTED = sa.text(f"""
{ROWS} WHERE (CAST(:before AS bigint) IS NULL OR id < :before) AND (CAST(:kind AS text) IS NULL OR kind = :kind)
ORDER BY id DESC LIMIT :limit
""")
FIND = sa.text(f"{ROWS} WHERE id = :id")
FINISH = sa.text("""
UPDATE replays SET selected = :selected, done = :done, skipped = :skipped, failed = :failed,
                   state = CASE state WHEN 'cancelled' THEN state ELSE 'finished' END, finished_at = now()
WHERE id = :id
""")
BEAT = sa.text("UPDATE replays SET beat_at = now() WHERE id = :id RETURNING state")
STEER = sa.text(f"""
UPDATE replays SET state = :state, finished_at = CASE WHEN {CUT_OFF} THEN now() END
WHERE id = :id AND finished_at IS NULL AND state IN ('running', 'paused') AND state <> :state
  AND (NOT {CUT_OFF} OR :state = 'cancelled')
""")
PAUSED_SECONDS = 0.5  # between two looks whether to go on


@dataclass(frozen=True, slots=True)
class Counts:
    """What came of a request: deliveries. `why` says how many were skipped for which reason."""

    id: int | None = None
    selected: int = 0
    done: int = 0
    skipped: int = 0
    failed: int = 0
    dry_run: bool = False
    why: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str | None:
        """As destinations see it in `hookyard-replay`."""
        return None if self.id is None else name_of(self.id)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as its row tells it; how far it is, while it runs."""

    id: int
    kind: Kind
    actor: str
    state: str
    selection: dict[str, Any]
    why: str | None
    rate: float | None
    expected: int
    selected: int
    done: int
    skipped: int
    failed: int
    created_at: datetime
    finished_at: datetime | None


Tell = Callable[[Counts], None]


def name_of(identity: int) -> str:
    """A request's id as people and destinations see it."""
    return f"{PREFIX}{identity}"


def is_name(text: str) -> bool:
    """Whether it is written like a request's id."""
    return NAME.fullmatch(text) is not None


def exists(connection: sa.Connection, name: str) -> bool:
    """Whether there is a request of this id."""
    return bool(connection.execute(EXISTS, {"id": int(name.removeprefix(PREFIX))}).scalar_one())


def listed(
    connection: sa.Connection, *, limit: int, before: int | None = None, kind: Kind | None = None
) -> list[Asked]:
    """The newest requests, newest first: of one kind, and older than one of them, where that is asked for."""
    rows = connection.execute(LISTED, {"limit": limit, "before": before, "kind": kind})
    return [Asked(*row) for row in rows]


def find(connection: sa.Connection, name: str) -> Asked:
    """The request of this id. Raises: NotFound."""
    row = connection.execute(FIND, {"id": int(name.removeprefix(PREFIX))}).one_or_none() if is_name(name) else None
    if row is None:
        raise NotFound(f"no replay, discard or backfill {shown(name)}")
    return Asked(*row)


def steer(connection: sa.Connection, name: str, action: Action, *, actor: str) -> Asked:
    """It halts after its chunk, goes on, or ends there: what is done stays done. Again changes nothing.

    The request as it is then. Raises: NotFound, Conflict where it has ended.
    """
    state = STATES[action]
    asked = find(connection, name)
    if connection.execute(STEER, {"id": asked.id, "state": state}).rowcount:
        audit.record(connection, actor, f"{asked.kind} {action}", name, {"id": name})
        return find(connection, name)
    asked = find(connection, name)
    if asked.state == "interrupted":
        raise Conflict(f"{name} was cut off: ask for the same again, what is done is not done twice; or cancel it")
    if asked.state != state:
        raise Conflict(f"{name} has ended")
    return asked


def nobody(identity: int) -> None:
    """Has no use for a request's id."""


def silence(counts: Counts) -> None:
    """Tells nobody."""


def begin(
    connection: sa.Connection,
    kind: Kind,
    actor: str,
    selection: Mapping[str, Any],
    subjects: Sequence[str],
    *,
    why: str | None = None,
    rate: float | None = None,
    expected: int = 0,
) -> int:
    """The request's id: it stands in its row and in the audit, once per subject."""
    row = {"kind": kind, "actor": actor, "selection": json.dumps(dict(selection)), "why": why, "rate": rate}
    row["expected"] = expected
    identity = int(connection.execute(BEGIN, row).scalar_one())
    details = {"id": name_of(identity)} | ({"why": why} if why else {})
    for subject in subjects:
        audit.record(connection, actor, kind, subject, details)
    return identity


def advance(connection: sa.Connection, identity: int, *, selected: int, done: int) -> None:
    """A chunk's numbers are in the request's row, if the chunk commits."""
    connection.execute(ADVANCE, {"id": identity, "selected": selected, "done": done})


class Request:
    """A request while it is worked off. Leaving the block finishes its row, however it is left."""

    __slots__ = ("_store", "counts")

    def __init__(self, store: Store, identity: int) -> None:
        self._store = store
        self.counts = Counts(identity)

    def __enter__(self) -> "Request":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(StorageUnavailable) if kind else contextlib.nullcontext():
            self._store.run(self._finish)

    def count(self, selected: int, done: int, why_not: Iterable[str]) -> None:
        """So many more were selected and done; the rest was skipped for these reasons."""
        reasons = Counter(why_not)
        now = self.counts
        self.counts = replace(
            now,
            selected=now.selected + selected,
            done=now.done + done,
            skipped=now.skipped + reasons.total(),
            why=dict(Counter(now.why) + reasons),
        )

    def goes_on(self, sleep: Callable[[float], None]) -> bool:
        """Whether there is more to do: asked between chunks, it returns when nobody pauses it. False: cancelled."""
        while True:
            with self._store.begin() as connection:
                state = connection.execute(BEAT, {"id": self.counts.id}).scalar_one()
            if state != "paused":
                return bool(state != "cancelled")
            sleep(PAUSED_SECONDS)

    def beat(self) -> None:
        """It is being worked at."""
        self._store.run(lambda connection: connection.execute(BEAT, {"id": self.counts.id}))

    def settle(self, delivered: int, failed: int) -> None:
        """Of what was re-queued so many were delivered so far, so many parked again."""
        self.counts = replace(self.counts, done=delivered, failed=failed)

    def _finish(self, connection: sa.Connection) -> None:
        now = self.counts
        row = {"id": now.id, "selected": now.selected, "done": now.done, "skipped": now.skipped, "failed": now.failed}
        connection.execute(FINISH, row)
