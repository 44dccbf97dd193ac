"""Attempts in the order in which they were recorded, for people who watch them happen."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from domain.events import Place, event_id
from storage.events import Attempt

PAGE = 500
# What is seen of a transaction is seen when it commits. One that records attempts is not given longer than this.
OVERLAP = timedelta(seconds=5)

NOW = sa.text("SELECT now()")
RECORDED = """
SELECT a.number, a.started_at, a.duration_ms, a.status, a.outcome, a.error, a.note, a.replay_id, a.answer,
       a.recorded_at, a.partner_id, a.destination_id, a.seq, a.received_at, p.name AS partner, n.name AS destination
FROM attempts a JOIN partners p ON p.id = a.partner_id JOIN destinations n ON n.id = a.destination_id
WHERE a.recorded_at >= :at {chosen}
  AND (a.recorded_at, a.partner_id, a.destination_id, a.seq, a.number) > (:at, :partner, :destination, :seq, :number)
ORDER BY a.recorded_at, a.partner_id, a.destination_id, a.seq, a.number LIMIT :limit
"""
CHOSEN = {
    "partners": " AND a.partner_id = ANY (:partners)",
    "destinations": " AND a.destination_id = ANY (:destinations)",
}

Key = tuple[datetime, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Recorded:
    """An attempt that has ended, with what it was an attempt of."""

    recorded_at: datetime
    place: Place
    partner: str
    destination: str
    attempt: Attempt

    @property
    def event(self) -> str:
        """The event's id."""
        return event_id(self.place.partner_id, self.place.sequence, self.place.received_at)


class Tail:
    """What is recorded from a moment on, each attempt once; of some partners or destinations where given.

    It goes over the last seconds again and again, because transactions are not seen in the order of their times.
    """

    def __init__(
        self, since: datetime, partners: tuple[int, ...] | None = None, destinations: tuple[int, ...] | None = None
    ) -> None:
        given = {"partners": partners, "destinations": destinations}
        self._chosen: dict[str, Any] = {name: list(ids) for name, ids in given.items() if ids is not None}
        chosen = "".join(CHOSEN[name] for name in self._chosen)
        self._query = sa.text(RECORDED.format(chosen=chosen))
        self._since = since
        self._last = _before(since)
        self._seen: set[Key] = set()

    def more(self, connection: sa.Connection) -> tuple[list[Recorded], bool]:
        """What is new, at most so many as a page has, and whether there is more of it already."""
        now = connection.execute(NOW).scalar_one()
        names = ("at", "partner", "destination", "seq", "number")
        values = dict(zip(names, self._last, strict=True)) | self._chosen | {"limit": PAGE}
        rows = connection.execute(self._query, values).all()
        fresh = [_recorded(row) for row in rows if _key(row) not in self._seen]
        self._seen.update(map(_key, rows))
        if len(rows) == PAGE:
            self._last = _key(rows[-1])
            return fresh, True
        self._since = max(self._since, now - OVERLAP)
        self._last = _before(self._since)
        self._seen = {key for key in self._seen if key[0] >= self._since}
        return fresh, False


def _before(moment: datetime) -> Key:
    """Less than the key of anything that is recorded at this moment."""
    return moment, 0, 0, 0, 0


def _key(row: sa.Row[Any]) -> Key:
    return row.recorded_at, row.partner_id, row.destination_id, row.seq, row.number


def _recorded(row: sa.Row[Any]) -> Recorded:
    place = Place(row.partner_id, row.seq, row.received_at)
    return Recorded(row.recorded_at, place, row.partner, row.destination, Attempt(*tuple(row)[:9]))
