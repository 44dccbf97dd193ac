"""`hookyard replay`, `discard`, `backfill`: what a person decides about many deliveries."""

import sys
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from domain.values import counted
from ops.cli.event import Reason, named
from ops.cli.options import (
    AN_EVENT,
    RANGE,
    ByDestination,
    ByPartner,
    DestinationName,
    DryRun,
    Json,
    Pace,
    PartnerName,
    Since,
    Until,
    Yes,
    wrong,
)
from ops.cli.output import instant, print_json, say
from ops.cli.session import Session, session

if TYPE_CHECKING:
    import sqlalchemy as sa

    from storage.replays import Kind, Selection
    from storage.requests import Counts

app = typer.Typer()

EventIds = Annotated[list[str] | None, typer.Argument(metavar="EVENT_ID", help=AN_EVENT, show_default=False)]
State = Annotated[
    str | None, typer.Option("--state", metavar="STATE", help="parked (default), delivered or discarded.")
]
Parked = Annotated[
    str | None, typer.Option("--state", metavar="parked", help="parked: nothing else can be discarded (default).")
]
DONE = {"replay": "queued again", "discard": "discarded", "backfill": "queued"}
HINTS = {
    ("replay", "is delivered"): " (--state delivered sends it again)",
    ("replay", "is discarded"): " (--state discarded sends it again)",
    ("replay", "destination suspended"): " (hookyard destination resume NAME comes first)",
    ("replay", "destination removed"): " (hookyard backfill PARTNER DESTINATION sends the events to a new destination)",
}
WOULD = {"replay": "would be queued again", "discard": "would be discarded", "backfill": "would be queued"}


@app.command("replay", epilog=RANGE, short_help="Send again what is parked (or delivered, discarded).")
def replay(
    event_ids: EventIds = None,
    partner: ByPartner = None,
    destination: ByDestination = None,
    state: State = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    rate: Pace = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until all of it is delivered or parked again; exit code 1 if any is parked.")
    ] = False,
    json: Json = False,
) -> None:
    """Send again: what is parked, or with --state what was delivered or discarded; with a fresh retry budget.

    Named events need no confirmation. A selection by options asks on a terminal and needs --yes elsewhere.
    """
    asked = Asked(event_ids or [], partner, destination, state, reason, since, until)
    _decide("replay", asked, rate=rate, dry_run=dry_run, yes=yes, wait=wait, json=json)


@app.command("discard", epilog=RANGE, short_help="End parked deliveries for good, with a reason.")
def discard(
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, for the audit.")],
    event_ids: EventIds = None,
    partner: ByPartner = None,
    destination: ByDestination = None,
    state: Parked = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    rate: Pace = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """End parked deliveries for good; only a replay with --state discarded brings them back.

    Named events need no confirmation. A selection by options asks on a terminal and needs --yes elsewhere.
    """
    if not why.strip() or not why.isprintable():
        raise wrong("a reason is printable text", "--why")
    asked = Asked(event_ids or [], partner, destination, state, reason, since, until)
    _decide("discard", asked, rate=rate, dry_run=dry_run, yes=yes, why=why, json=json)


@app.command("backfill", epilog=RANGE, short_help="Deliver stored events to a new destination.")
def backfill(
    partner: PartnerName,
    destination: DestinationName,
    since: Since = None,
    until: Until = None,
    rate: Pace = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Deliver stored events, accepted before the destination was subscribed, in order. Asks, or needs --yes."""
    from storage import backfills

    span = backfills.Span(since, until)
    with session() as now:
        if dry_run or not yes:
            counts = now.store.run(lambda connection: backfills.count(connection, partner, destination, span))
            if dry_run:
                _report("backfill", counts, json)
                return
            stored = counted(counts.selected, "stored event", "stored events")
            _agree(f"Deliver {stored} of {partner} to {destination}?")
        counts = backfills.run(now.store, partner, destination, span, actor=now.actor, rate=rate, tell=_progress)
    _report("backfill", counts, json)


@dataclass(frozen=True, slots=True)
class Asked:
    """A selection as it was written."""

    events: list[str]
    partner: str | None
    destination: str | None
    state: str | None
    reason: str | None
    since: datetime | None
    until: datetime | None

    def told(self) -> dict[str, Any]:
        """What of it was given, for the request's row and the audit."""
        given = {field: getattr(self, field) for field in self.__slots__}
        return {
            name: instant(value) if isinstance(value, datetime) else value for name, value in given.items() if value
        }

    def selection(self, connection: "sa.Connection") -> "Selection":
        """The selection it means. Raises: NotFound for a name or an id."""
        from storage import events
        from storage.replays import Selection

        places = tuple(dict.fromkeys(events.locate(connection, text) for text in self.events))
        ids = named(connection, self.partner, self.destination)
        where = events.Filter(*ids, self.state, None, self.since, self.until, self.reason)
        return Selection(places, where, self.told())


def _decide(
    kind: "Kind",
    asked: Asked,
    *,
    rate: float | None,
    dry_run: bool,
    yes: bool,
    json: bool,
    wait: bool = False,
    why: str | None = None,
) -> None:
    from storage import replays

    if not asked.told():
        raise wrong("name events, or select by --partner, --destination, --state, --reason, --since or --until")
    if asked.state is not None and asked.state not in replays.STATES:
        raise wrong(f"{asked.state!r} is no state: {', '.join(replays.STATES)}", "--state")
    if kind == "discard" and asked.state not in (None, "parked"):
        raise wrong("only what is parked can be discarded", "--state")
    if asked.reason is not None and asked.reason not in replays.REASONS:
        raise wrong(f"{asked.reason!r} is no reason: {', '.join(replays.REASONS)}", "--reason")
    with session() as now:
        selection = now.store.run(asked.selection)
        if dry_run:
            _report(kind, now.store.run(lambda connection: replays.count(connection, kind, selection)), json)
            return
        if not asked.events and not yes:
            _ask(now, kind, selection)
        counts = replays.run(now.store, kind, selection, actor=now.actor, why=why, rate=rate, wait=wait, tell=_progress)
    _report(kind, counts, json, waited=wait)
    if counts.failed:
        raise typer.Exit(1)


def _ask(now: Session, kind: "Kind", selection: "Selection") -> None:
    """Returns if a person agrees. Raises: BadParameter where nobody can be asked, Abort for a no."""
    from storage import replays

    if not sys.stdin.isatty():
        raise wrong("a selection needs --yes where nobody can be asked")
    counts = now.store.run(lambda connection: replays.count(connection, kind, selection))
    _agree(f"{kind.capitalize()} {_deliveries(counts.selected - counts.skipped)}?")


def _agree(question: str) -> None:
    if not sys.stdin.isatty():
        raise wrong("this needs --yes where nobody can be asked")
    typer.confirm(question, abort=True, err=True)


def document(counts: "Counts") -> dict[str, Any]:
    """What came of a request, for a program."""
    return {
        "id": counts.name,
        "dry_run": counts.dry_run,
        "selected": counts.selected,
        "done": counts.done,
        "skipped": counts.skipped,
        "failed": counts.failed,
        "skipped_because": counts.why,
    }


def _report(kind: str, counts: "Counts", json: bool, waited: bool = False) -> None:
    if json:
        print_json(document(counts))
        return
    if not counts.selected:
        print(f"nothing to {kind}: no delivery is selected")
        return
    if counts.dry_run:
        print(f"dry run: {_deliveries(counts.selected - counts.skipped)} {WOULD[kind]}")
    elif waited:
        print(f"{counts.name}: {_deliveries(counts.done)} delivered, {counts.failed} parked again")
    else:
        print(f"{counts.name}: {_deliveries(counts.done)} {DONE[kind]}")
    for reason, number in counts.why.items():
        print(f"skipped {number}: {reason}{HINTS.get((kind, reason), '')}")


def _deliveries(number: int) -> str:
    return counted(number, "delivery", "deliveries")


def _progress(counts: "Counts") -> None:
    """A person who waits sees how far it is."""
    if sys.stderr.isatty():
        print(f"\r{counts.done} done, {counts.failed} failed, {counts.skipped} skipped ", end="", file=sys.stderr)
        if counts.done + counts.failed + counts.skipped >= counts.selected:
            say("")
