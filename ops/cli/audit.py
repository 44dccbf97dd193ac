"""`hookyard audit`: who did what, and when."""

import json as codec
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.cli.options import RANGE, Json, moment, wrong
from ops.cli.output import instant, print_json, print_table
from ops.cli.session import session

if TYPE_CHECKING:
    import sqlalchemy as sa

    from storage.audit import Entry

app = typer.Typer()

AUDIT_LIMIT = 100


@app.command("audit", epilog=RANGE, short_help="Show who did what, and when.")
def audit(
    subject: Annotated[
        str | None,
        typer.Option("--subject", metavar="NAME", help="Only of this event, partner, destination or replay (rpl_1)."),
    ] = None,
    actor: Annotated[str | None, typer.Option("--actor", metavar="WHO", help="Only what this one did.")] = None,
    action: Annotated[
        str | None, typer.Option("--action", metavar="WHAT", help="Only such actions, as in 'partner edit' or replay.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option("--since", parser=moment, metavar="TIME", help="Done then or later.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", parser=moment, metavar="TIME", help="Done before.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most so many, 1 to 100000.")] = AUDIT_LIMIT,
    json: Json = False,
) -> None:
    """Show who did what to which event, partner or destination, and when; the newest first."""
    from storage import audit as books

    if not 1 <= limit <= 100_000:
        raise wrong(f"{limit}: 1 to 100000 are allowed", "--limit")
    with session() as now, now.store.begin() as connection:
        about = {} if subject is None else meant(connection, subject)
        found = books.entries(connection, limit=limit, actor=actor, action=action, since=since, until=until, **about)
    if json:
        print_json([audit_document(entry) for entry in found])
        return
    rows = [(e.at, e.actor, e.action, e.subject, _details(e.details)) for e in found]
    nothing = "nothing matches" if subject or actor or action or since or until else "nothing was done yet"
    print_table(("AT", "ACTOR", "ACTION", "SUBJECT", "DETAILS"), rows, nothing, spare=("ACTOR",), flow="DETAILS")


def audit_document(entry: "Entry") -> dict[str, Any]:
    """A row of the audit for a program."""
    return {
        "at": instant(entry.at),
        "actor": entry.actor,
        "action": entry.action,
        "subject": entry.subject,
        "details": entry.details,
    }


def meant(connection: "sa.Connection", subject: str) -> dict[str, Any]:
    """What a subject, as people write it, means to the audit. Raises: NotFound for what there never was."""
    from domain.events import event_id
    from domain.values import is_name, shown
    from storage import events, names, requests
    from storage.errors import NotFound

    if requests.is_name(subject):
        if not requests.exists(connection, subject):
            raise NotFound(f"no replay, discard or backfill {subject}")
        return {"request": subject}
    if subject.startswith("evt_") or "/" in subject:
        place = events.locate(connection, subject)
        return {"subject": event_id(place.partner_id, place.sequence, place.received_at)}
    if not is_name(subject):
        return {"subject": subject}
    if not names.is_known(connection, subject):
        raise NotFound(f"no partner, destination, event or replay {shown(subject)}")
    return {"name": subject}


def _details(details: dict[str, Any]) -> str:
    return " ".join(f"{name}={_written(value)}" for name, value in details.items())


def _written(value: Any) -> str:
    """A detail as people write it: lists by commas, text with blanks in quotes."""
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    text = str(value)
    return codec.dumps(text, ensure_ascii=False) if " " in text else text
