"""The pages about many deliveries at once: what is parked, and replays, discards and backfills on their way."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ops.api import bulk
from ops.api.events import list_parked
from ops.dashboard.flows import names
from ops.dashboard.front import Front, asked
from storage.replays import REASONS

FIELDS = ("partner", "destination", "reason", "since", "until")
ROWS = 50


async def parked(front: Front, request: Request) -> Response:
    """What waits for a person: choose, count, start."""
    fields = asked(request, *FIELDS)
    cursor = asked(request, "cursor")["cursor"]
    found = await list_parked(front.means, limit=ROWS, cursor=cursor, **fields)  # type: ignore[arg-type]
    chosen = {name: value for name, value in fields.items() if value is not None}
    return front.page(request, "parked.html", page=found, chosen=chosen, reasons=REASONS, **await names(front))


async def replays(front: Front, request: Request) -> Response:
    """Every request, the newest first, with how far it is; and the forms that begin one."""
    cursor = asked(request, "cursor")["cursor"]
    found = await bulk.list_bulk_requests(front.means, limit=ROWS, cursor=cursor)
    rows = [_with_pace(front, row) for row in found["items"]]
    return front.page(request, "replays.html", rows=rows, next=found["next"], **await names(front))


async def replay(front: Front, request: Request) -> Response:
    """One request."""
    row = _with_pace(front, await bulk.show_bulk_request(front.means, request.path_params["id"]))
    return front.page(request, "replay.html", row=row)


def _with_pace(front: Front, row: dict[str, Any]) -> dict[str, Any]:
    settled = row["done"] + row["skipped"] + row["failed"]
    running = row["state"] == "running"
    return row | {"settled": settled, "pace": front.paces.measure(row["id"], settled if running else None)}
