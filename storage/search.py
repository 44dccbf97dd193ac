"""Events by what is in their bodies, for people: no index could hold that, so the newest are looked through, a chunk at
a time and not for long; the answer says how far it came, and where to go on.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from domain.events import Place
from domain.sources import LookUp, Path
from storage.events import Filter, Listed, listed

CHUNK = 500  # events whose bodies are looked into at once
SECONDS = 0.5  # a page; its last chunk may take a little longer
CONTAINING = sa.text("""
SELECT e.partner_id, e.seq, CASE WHEN :whole THEN e.body END
FROM unnest(CAST(:partners AS int[]), CAST(:seqs AS bigint[]), CAST(:ats AS timestamptz[])) AS w (partner_id, seq, at)
JOIN events e ON e.partner_id = w.partner_id AND e.seq = w.seq AND e.received_at = w.at
WHERE position(:text IN e.body) > 0
""")


@dataclass(frozen=True, slots=True)
class Needle:
    """What a body holds: this text, as UTF-8, somewhere; or at this place in its JSON exactly this value."""

    text: str
    path: Path | None = None

    @property
    def certain(self) -> bytes:
        """Bytes that are in any body that matches: JSON may write other letters in more than one way."""
        plain = self.path is None or (self.text.isascii() and self.text.isalnum())
        return self.text.encode() if plain else b""


@dataclass(frozen=True, slots=True)
class Found:
    """A page. `looked_to` is the last event looked into, where there are more; it may have found nothing so far."""

    events: list[Listed]
    looked_to: Place | None


def search(
    connection: sa.Connection,
    wanted: Filter,
    needle: Needle,
    look_up: LookUp,
    *,
    limit: int,
    before: Place | None = None,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Found:
    """The newest events that pass the filter and hold the needle, newest first, of those older than `before`."""
    found: list[Listed] = []
    began = clock()
    while True:
        chunk = listed(connection, wanted, limit=CHUNK, before=before)
        holding = _holding(connection, chunk, needle, look_up)
        for event in chunk:
            before = event.place
            if (event.place.partner_id, event.place.sequence) in holding:
                found.append(event)
            if len(found) == limit:
                return Found(found, before)
        if len(chunk) < CHUNK:
            return Found(found, None)
        if clock() - began >= seconds:
            return Found(found, before)


def _holding(
    connection: sa.Connection, chunk: Sequence[Listed], needle: Needle, look_up: LookUp
) -> set[tuple[int, int]]:
    values: dict[str, Any] = {
        "partners": [event.place.partner_id for event in chunk],
        "seqs": [event.place.sequence for event in chunk],
        "ats": [event.place.received_at for event in chunk],
        "text": needle.certain,
        "whole": needle.path is not None,
    }
    rows = connection.execute(CONTAINING, values)
    path = needle.path
    return {(row[0], row[1]) for row in rows if path is None or look_up(row[2], path) == needle.text}
