"""Events over the API: listing, showing, the exact bytes, what is parked."""

from datetime import UTC, datetime
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query
from starlette.responses import Response

from domain.events import Place
from domain.globs import normal_globs, pattern_of
from domain.lifecycle import ParkReason
from domain.sources import dedupe_digest, parse_source
from domain.values import parse_time
from ingest.pointers import look_up
from ops.api.means import LIMIT, Cursor, Limit, UseMeans, key_of, page
from ops.api.shapes import Event, EventRow, EventState, Page, Time
from ops.cli.event import document, named, row
from storage import events
from storage.errors import Invalid
from storage.search import Found, Needle, search

router = APIRouter(tags=["events"])

PartnerName = Annotated[str | None, Query(description="Only of this partner.")]
DestinationName = Annotated[str | None, Query(description="Only to this destination.")]
Since = Annotated[Time | None, Query(description="Received then or later: ISO 8601, or an age such as 15m or 7d.")]
Until = Annotated[Time | None, Query(description="Received before.")]
Glob = Annotated[str | None, Query(alias="type", max_length=200, description="Only of such a type (* and ?).")]
Dedupe = Annotated[str | None, Query(max_length=1000, description="The event of this dedupe value.")]
Text = Annotated[str | None, Query(min_length=1, max_length=200, description="Only with this text in the body.")]
Pointer = Annotated[
    str | None,
    Query(max_length=200, examples=["/order/id"], description="Only where this JSON pointer's value is the text."),
]
BYTES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The exact bytes.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.get("/events", response_model=Page[EventRow], response_model_exclude_unset=True)
async def list_events(
    means: UseMeans,
    partner: PartnerName = None,
    destination: DestinationName = None,
    state: EventState | None = None,
    glob: Glob = None,
    since: Since = None,
    until: Until = None,
    dedupe: Dedupe = None,
    text: Text = None,
    pointer: Pointer = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Any:
    """List events, the newest first. With a destination a row is one delivery, and the state is the delivery's.

    `text` looks through bodies, from the newest on, for half a second at most: a page may have few items or none, and
    still a `next` that goes on from where it came to.
    """
    key = key_of(cursor, datetime, int, int)
    before = None if key is None else Place(key[1], key[2], key[0])
    pattern, bounds = pattern_or_none(glob), (moment(since), moment(until))
    digest, needle = None if dedupe is None else dedupe_digest(dedupe), needle_or_none(text, pointer)

    def look(connection: sa.Connection) -> Found:
        ids = named(connection, partner, destination)
        wanted = events.Filter(*ids, state, pattern, *bounds, digest=digest)
        if needle is not None:
            return search(connection, wanted, needle, look_up, limit=limit, before=before)
        found = events.listed(connection, wanted, limit=limit + 1, before=before)
        return Found(found[:limit], found[limit - 1].place if len(found) > limit else None)

    found = await means.desk.run(look)
    to = found.looked_to
    following = None if to is None else (to.received_at, to.partner_id, to.sequence)
    return page([row(event) for event in found.events], following)


@router.get("/events/{event_id}", response_model=Event)
async def show_event(means: UseMeans, event_id: str) -> Any:
    """Show an event: every delivery's state, every attempt with time, status, duration and error."""
    return document(await means.desk.run(lambda connection: events.find(connection, event_id)))


@router.get("/events/{event_id}/body", responses=BYTES, response_class=Response)
async def event_body(means: UseMeans, event_id: str) -> Response:
    """The event's exact bytes, as a download: nothing a partner wrote is shown as a page."""
    found = await means.desk.run(lambda connection: events.content(connection, event_id))
    name = f'attachment; filename="{event_id}.bin"' if event_id.isalnum() or "_" in event_id else "attachment"
    return Response(found.body, media_type="application/octet-stream", headers={"content-disposition": name})


@router.get("/parked", response_model=Page[EventRow], response_model_exclude_unset=True)
async def list_parked(
    means: UseMeans,
    partner: PartnerName = None,
    destination: DestinationName = None,
    reason: ParkReason | None = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Any:
    """List what is parked: deliveries that wait for a person, by partner, destination and sequence."""
    after = key_of(cursor, int, int, int)
    bounds = (moment(since), moment(until))

    def look(connection: sa.Connection) -> tuple[list[events.Listed], Any]:
        wanted = events.Filter(*named(connection, partner, destination), None, None, *bounds, reason)
        return events.parked(connection, wanted, limit=limit, after=after)

    found, following = await means.desk.run(look)
    return page([row(event) for event in found], following)


def moment(text: str | None) -> datetime | None:
    """An instant as people write it. Raises: Invalid."""
    try:
        return None if text is None else parse_time(text, datetime.now(UTC))
    except ValueError as problem:
        raise Invalid(str(problem)) from problem


def pattern_or_none(glob: str | None) -> str | None:
    """What a glob of types means to the database. Raises: Invalid."""
    try:
        globs = None if glob is None else normal_globs([glob])
    except ValueError as problem:
        raise Invalid(str(problem)) from problem
    return None if globs is None else pattern_of(globs)


def needle_or_none(text: str | None, pointer: str | None) -> Needle | None:
    """What a body has to hold. Raises: Invalid."""
    if text is None:
        if pointer is not None:
            raise Invalid("pointer: it goes with a text, which is the value there")
        return None
    try:
        return Needle(text, None if pointer is None else parse_source(f"json:{pointer}").path)
    except ValueError as problem:
        raise Invalid(str(problem)) from problem
