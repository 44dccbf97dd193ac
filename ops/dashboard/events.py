"""The pages about events: the search, and one event with its whole life."""

from __future__ import annotations

from urllib.parse import quote

import sqlalchemy as sa
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ops.api.events import list_events
from ops.dashboard import bodies
from ops.dashboard.flows import names
from ops.dashboard.front import Front, asked
from storage import events

FIELDS = ("partner", "destination", "state", "type", "since", "until", "dedupe", "text", "pointer")
ROWS = 50
VIEWS = {"text": bodies.text, "json": bodies.indented, "hex": bodies.hexadecimal}


async def search(front: Front, request: Request) -> Response:
    """Events that pass a filter, newest first; an id leads to its event."""
    if wanted := request.query_params.get("id", "").strip():
        return RedirectResponse(f"/events/{quote(wanted, safe='')}", 303)
    fields = asked(request, *FIELDS, "cursor")
    glob = fields.pop("type")
    found = await list_events(front.means, glob=glob, limit=ROWS, **fields)  # type: ignore[arg-type]
    told = {"page": found, "states": events.STATES, **await names(front)}
    return front.page(request, "events.html", **told)


async def event(front: Front, request: Request) -> Response:
    """One event: received, each delivery, each attempt; what was sent, in three views."""
    identity = request.path_params["id"]

    def look(connection: sa.Connection) -> tuple[events.Event, events.Content]:
        return events.find(connection, identity), events.content(connection, identity)

    found, content = await front.means.desk.run(look)
    written = bodies.indented(content.body)
    view = request.query_params.get("view", "json" if written is not None else "text")
    view = view if view in VIEWS else "text"
    shown = VIEWS[view](content.body)
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in content.headers]
    return front.page(request, "event.html", event=found, headers=headers, view=view, views=list(VIEWS), shown=shown)
