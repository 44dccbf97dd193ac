"""`hookyard tail`: attempts as they happen."""

import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.cli.event import attempt_document, named
from ops.cli.options import ByDestination, ByPartner, Json, moment
from ops.cli.output import Columns, print_json, say
from ops.cli.session import Session, session

if TYPE_CHECKING:
    from storage.attempts import Recorded, Tail

app = typer.Typer()

POLL_SECONDS = 0.5
COLUMNS = {"TIME": 12, "EVENT": 12, "DESTINATION": 12, "ATTEMPT": 7, "STATUS": 6, "MS": 5, "OUTCOME": 10, "ERROR": 0}


@app.command("tail", short_help="Show attempts as they happen.")
def tail(
    partner: ByPartner = None,
    destination: ByDestination = None,
    since: Annotated[
        datetime | None,
        typer.Option("--since", parser=moment, metavar="TIME", help="Also what ended then or later (default: now)."),
    ] = None,
    json: Json = False,
) -> None:
    """Show attempts as they end, a line each, until Ctrl-C; with --json a document on each line. Times are in UTC.

    An outage of the database is waited out: nothing that ended meanwhile is missing.
    """
    from storage.attempts import NOW, Tail

    with session() as now:
        with now.store.begin() as connection:
            begin = since or connection.execute(NOW).scalar_one()
            wanted = Tail(begin, *named(connection, partner, destination))
        columns = Columns(COLUMNS)
        if not json:
            columns.head()
        for found in follow(now, wanted):
            for recorded in found:
                if json:
                    print_json(document(recorded), on_one_line=True)
                else:
                    columns.line(cells(recorded))
            sys.stdout.flush()


def follow(now: Session, wanted: "Tail") -> Iterator[list["Recorded"]]:
    """What is new, again and again, without end; empty where nothing is. While the database is away it says so once."""
    from storage.errors import StorageUnavailable

    away = False
    while True:
        found: list[Recorded] = []
        more = False
        try:
            with now.store.begin() as connection:
                found, more = wanted.more(connection)
            if away:
                say("note: the database answers again")
            away = False
        except StorageUnavailable as problem:
            if not away:
                say(f"note: {problem}; waiting for it")
            away = True
        yield found
        if not more:
            time.sleep(POLL_SECONDS)


def document(recorded: "Recorded") -> dict[str, Any]:
    """An attempt with what it was an attempt of, for a program."""
    told = {
        "event": recorded.event,
        "partner": recorded.partner,
        "sequence": recorded.place.sequence,
        "destination": recorded.destination,
    }
    return told | attempt_document(recorded.attempt)


def cells(recorded: "Recorded") -> tuple[object, ...]:
    """The cells of a line of COLUMNS."""
    attempt = recorded.attempt
    return (
        f"{attempt.started_at:%H:%M:%S.%f}"[:-3],
        f"{recorded.partner}/{recorded.place.sequence}",
        recorded.destination,
        attempt.number,
        attempt.status,
        attempt.duration_ms,
        attempt.outcome,
        "; ".join(remark for remark in (attempt.error, attempt.note) if remark),
    )
