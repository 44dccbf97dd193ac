"""Who did what to which partner, destination or event, and when: a row in the transaction of the change itself.

Details never hold a secret, a header's value or the query of a URL.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from storage.tables import audit

ACTOR_CHARACTERS = 200
ENTRIES = """
SELECT a.id, a.at, a.actor, a.action, a.subject, a.details, r.kind, r.selected, r.done, r.skipped, r.failed
FROM (SELECT * FROM audit a WHERE {conditions} ORDER BY a.id DESC LIMIT :limit) a
LEFT JOIN replays r ON r.id = CAST(substring(a.details->>'id' FROM '^rpl_([0-9]{{1,18}})$') AS bigint)
ORDER BY a.id DESC
"""
CONDITIONS = {
    "subject": "a.subject = :subject",
    "name": r"a.subject ~ ('(^|> |\mpartner=|\mdestination=)' || :name || '( |$)')",  # a name has no special characters
    "request": "a.details->>'id' = :request",
    "actor": "a.actor = :actor",
    "action": "a.action = :action",
    "before": "a.id < :before",
    "since": "a.at >= :since",
    "until": "a.at < :until",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the audit; a later one has a higher id."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    details: dict[str, Any]


def record(
    connection: sa.Connection, actor: str, action: str, subject: str, details: Mapping[str, Any] | None = None
) -> None:
    """The change of this transaction is in the audit, if it commits."""
    row = {"actor": actor[:ACTOR_CHARACTERS], "action": action, "subject": subject, "details": dict(details or {})}
    connection.execute(audit.insert().values(row))


def entries(
    connection: sa.Connection,
    *,
    limit: int,
    subject: str | None = None,
    name: str | None = None,
    request: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    before: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Entry]:
    """The newest entries, newest first; of a half-open range where given.

    Of one subject exactly as it was recorded, of a partner or destination by its name (also where it is one of several
    things named), of the request of a person by its id, of one actor or action, older than an entry of this id, where
    given. Those of a request tell how far it came.
    """
    values: dict[str, Any] = {"subject": subject, "name": name, "request": request, "actor": actor, "action": action}
    values |= {"limit": limit, "before": before, "since": since, "until": until}
    given = [condition for field, condition in CONDITIONS.items() if values[field] is not None]
    query = sa.text(ENTRIES.format(conditions=" AND ".join(["true", *given])))
    return [_entry(row) for row in connection.execute(query, values)]


def _entry(row: sa.Row[Any]) -> Entry:
    counts = {} if row.kind is None else {"selected": row.selected, "done": row.done, "skipped": row.skipped}
    counts |= {"failed": row.failed} if row.failed else {}
    return Entry(row.id, row.at, row.actor, row.action, row.subject, row.details | counts)
