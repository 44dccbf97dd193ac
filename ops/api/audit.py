"""The audit over the API."""

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query

from ops.api.events import Since, Until, moment
from ops.api.means import LIMIT, Cursor, Limit, UseMeans, cut, key_of, page
from ops.api.shapes import AuditEntry, Page
from ops.cli.audit import audit_document, meant
from storage import audit

router = APIRouter(tags=["audit"])

Subject = Annotated[str | None, Query(max_length=300, description="An event, partner, destination or replay (rpl_1).")]


@router.get("/audit", response_model=Page[AuditEntry])
async def list_audit(
    means: UseMeans,
    subject: Subject = None,
    actor: str | None = None,
    action: str | None = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Any:
    """List who did what, and when, the newest first."""
    (before,) = key_of(cursor, int) or (None,)
    span: dict[str, Any] = {"since": moment(since), "until": moment(until)}

    def look(connection: sa.Connection) -> list[audit.Entry]:
        about = {} if subject is None else meant(connection, subject)
        return audit.entries(connection, limit=limit + 1, actor=actor, action=action, before=before, **span, **about)

    items, following = cut(await means.desk.run(look), limit, lambda entry: (entry.id,))
    return page([audit_document(entry) for entry in items], following)
