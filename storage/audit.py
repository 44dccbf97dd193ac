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


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the audit."""

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
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Entry]:
    """The newest entries, newest first; of one subject, or of a half-open range, where given."""
    query = sa.select(audit.c.at, audit.c.actor, audit.c.action, audit.c.subject, audit.c.details)
    if subject is not None:
        query = query.where(audit.c.subject == subject)
    if since is not None:
        query = query.where(audit.c.at >= since)
    if until is not None:
        query = query.where(audit.c.at < until)
    return [Entry(*row) for row in connection.execute(query.order_by(audit.c.id.desc()).limit(limit))]
