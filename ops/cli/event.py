"""`hookyard event …`, `hookyard parked`: what was received, and what became of it."""

import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.cli.options import RANGE, ByDestination, ByPartner, EventId, Json, Since, Until, wrong
from ops.cli.output import instant, print_fields, print_json, print_json_rows, print_table, printable, say
from ops.cli.session import Session, session

if TYPE_CHECKING:
    import sqlalchemy as sa

    from storage.events import Attempt, Delivery, Event, Filter, Listed

app = typer.Typer(help="Events: what was received, and what became of it.", no_args_is_help=True)
top = typer.Typer()

LIST_LIMIT = 50
MOST = 10_000
SHOWN_PARKED = 200  # rows of a table; --json has no bound

REASONS = (
    "attempts_exhausted, lane_full, destination_suspended, destination_removed, rejected, worker_crashed, undeliverable"
)
Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="REASON", help=f"Only parked for this reason: {REASONS}."),
]


@app.command("list", epilog=RANGE, short_help="List events, the newest first.")
def list_(
    partner: ByPartner = None,
    destination: ByDestination = None,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="STATE", help="received, queued, delivering, parked, discarded or delivered."),
    ] = None,
    type_: Annotated[str | None, typer.Option("--type", metavar="GLOB", help="Only of such a type (* and ?).")] = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help=f"At most so many, 1 to {MOST}.")] = LIST_LIMIT,
    json: Json = False,
) -> None:
    """List events, the newest first, each with the least finished state of its deliveries.

    With --destination a row is one delivery, and the state is the delivery's.
    """
    from domain.globs import normal_globs, pattern_of
    from storage import events

    if state is not None and state not in events.STATES:
        raise wrong(f"{state!r} is no state: {', '.join(events.STATES)}", "--state")
    if not 1 <= limit <= MOST:
        raise wrong(f"{limit}: 1 to {MOST} are allowed", "--limit")
    try:
        globs = normal_globs([type_]) if type_ is not None else None
    except ValueError as problem:
        raise wrong(str(problem), "--type") from problem
    with session() as now, now.store.begin() as connection:
        wanted = events.Filter(
            *named(connection, partner, destination), state, pattern_of(globs) if globs else None, since, until
        )
        found = events.listed(connection, wanted, limit=limit)
    if json:
        print_json([row(event) for event in found])
        return
    columns = ("EVENT", "PARTNER", "SEQUENCE", "TYPE", "STATE", "RECEIVED")
    rows: list[tuple[object, ...]] = [
        (e.id, e.partner, e.place.sequence, e.type, e.state, e.place.received_at) for e in found
    ]
    if destination is not None:
        columns = (*columns, "DESTINATION", "REASON")  # type: ignore[assignment]
        rows = [(*cells, e.destination, e.park_reason) for cells, e in zip(rows, found, strict=True)]
    print_table(columns, rows, "no events", spare=("RECEIVED", "SEQUENCE", "PARTNER"), flow="TYPE")


@app.command("show", short_help="Show an event: deliveries and attempts.")
def show(event_id: EventId, json: Json = False) -> None:
    """Show an event: every delivery's state, every attempt with time, status, duration and error."""
    from storage import events

    with session() as now, now.store.begin() as connection:
        found = events.find(connection, event_id)
    if json:
        print_json(document(found))
    else:
        _print_story(found)


@app.command("body", short_help="Write the event's exact bytes to stdout.")
def body(event_id: EventId) -> None:
    """Write the event's exact bytes to stdout, and nothing else."""
    from storage import events

    with session() as now, now.store.begin() as connection:
        content = events.content(connection, event_id)
    sys.stdout.buffer.write(content.body)
    sys.stdout.buffer.flush()


@top.command("parked", epilog=RANGE, short_help="List what is parked, and why.")
def parked(
    partner: ByPartner = None,
    destination: ByDestination = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", help=f"At most so many (default {SHOWN_PARKED}; with --json all)."),
    ] = None,
    json: Json = False,
) -> None:
    """List what is parked: deliveries that wait for a person, by partner, destination and sequence."""
    from storage import events, replays

    if limit is not None and limit < 1:
        raise wrong(f"{limit}: 1 or more are allowed", "--limit")
    if reason is not None and reason not in replays.REASONS:
        raise wrong(f"{reason!r} is no reason: {', '.join(replays.REASONS)}", "--reason")
    with session() as now:
        with now.store.begin() as connection:
            wanted = events.Filter(*named(connection, partner, destination), None, None, since, until, reason)
        found = _pages(now, wanted)
        if json:
            print_json_rows(map(row, islice(found, limit)))
            return
        most = SHOWN_PARKED if limit is None else limit
        shown = list(islice(found, most + 1))
    columns = ("EVENT", "PARTNER", "DESTINATION", "SEQUENCE", "TYPE", "REASON", "RECEIVED")
    rows = [
        (e.id, e.partner, e.destination, e.place.sequence, e.type, e.park_reason, e.place.received_at)
        for e in shown[:most]
    ]
    print_table(columns, rows, "nothing is parked", spare=("RECEIVED", "TYPE", "SEQUENCE"))
    if len(shown) > most:
        say(f"note: these are the first {most}; --limit N lists more, --json all")


def named(
    connection: "sa.Connection", partner: str | None, destination: str | None
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """The ids behind the names of a filter; removed ones count. Raises: NotFound."""
    from storage import destinations, partners

    return (
        None if partner is None else tuple(partners.ids_named(connection, partner)),
        None if destination is None else tuple(destinations.ids_named(connection, destination)),
    )


def row(event: "Listed") -> dict[str, Any]:
    """A row of a listing for a program."""
    told: dict[str, Any] = {
        "id": event.id,
        "partner": event.partner,
        "sequence": event.place.sequence,
        "type": event.type,
        "state": event.state,
        "received_at": instant(event.place.received_at),
    }
    if event.destination is not None:
        told |= {"destination": event.destination, "park_reason": event.park_reason}
    return told


def _pages(now: Session, wanted: "Filter") -> "Iterator[Listed]":
    """Everything parked that passes the filter, each page read in a transaction of its own."""
    from storage import events

    after = None
    while True:
        with now.store.begin() as connection:
            page, after = events.parked(connection, wanted, after=after)
        yield from page
        if after is None:
            return


def document(event: "Event") -> dict[str, Any]:
    """An event with its story, for a program."""
    return {
        "id": event.id,
        "partner": event.partner,
        "sequence": event.place.sequence,
        "type": event.type,
        "state": event.state,
        "received_at": instant(event.place.received_at),
        "content_type": event.content_type,
        "body_bytes": event.body_bytes,
        "query": None if event.query is None else event.query.decode("latin-1"),
        "deliveries": [_delivery(delivery) for delivery in event.deliveries],
    }


def _delivery(delivery: "Delivery") -> dict[str, Any]:
    return {
        "destination": delivery.destination,
        "state": delivery.state,
        "park_reason": delivery.park_reason,
        "next_attempt_at": instant(delivery.next_attempt_at),
        "attempts": [attempt_document(attempt) for attempt in delivery.attempts],
    }


def attempt_document(attempt: "Attempt") -> dict[str, Any]:
    """An attempt for a program."""
    from storage.requests import name_of

    return {
        "number": attempt.number,
        "started_at": instant(attempt.started_at),
        "duration_ms": attempt.duration_ms,
        "status": attempt.status,
        "outcome": attempt.outcome,
        "error": attempt.error,
        "note": attempt.note,
        "replay": None if attempt.replay is None else name_of(attempt.replay),
    }


def _print_story(event: "Event") -> None:
    told = document(event)
    del told["deliveries"]
    print_fields({name: value for name, value in told.items() if value is not None})
    if not event.deliveries:
        print(
            "\nno deliveries: " + ("it is not dispatched yet" if event.state == "received" else "nobody was subscribed")
        )
    for delivery in event.deliveries:
        line = f"\nto {delivery.destination}: {delivery.state}"
        if delivery.park_reason:
            line += f" ({delivery.park_reason}{', holds its lane' if delivery.holding else ''})"
        if delivery.next_attempt_at:
            line += f", next attempt at {instant(delivery.next_attempt_at)}"
        print(line)
        columns = ("ATTEMPT", "STARTED", "MS", "STATUS", "OUTCOME", "REPLAY", "ERROR")
        rows = [_cells(attempt) for attempt in delivery.attempts]
        print_table(columns, rows, "no attempt yet", spare=("MS",), flow="ERROR")


def _cells(attempt: "Attempt") -> tuple[object, ...]:
    from storage.requests import name_of

    remarks = [attempt.error, attempt.note]
    return (
        attempt.number,
        attempt.started_at,
        attempt.duration_ms,
        attempt.status,
        attempt.outcome,
        "" if attempt.replay is None else name_of(attempt.replay),
        printable("; ".join(remark for remark in remarks if remark)),
    )
