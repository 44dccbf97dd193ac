"""`hookyard backlog`: what waits, and why."""

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.cli.options import Json
from ops.cli.output import age, instant, print_json, print_table
from ops.cli.session import session

if TYPE_CHECKING:
    from datetime import datetime

    from storage.backlog import Backlog, Lane

app = typer.Typer()

REFRESH_SECONDS = 2.0
WINDOW = 30  # refreshes over which a slope is measured: a minute
COLUMNS = (
    "PARTNER",
    "DESTINATION",
    "WAITING",
    "SLOPE",
    "OLDEST",
    "IN FLIGHT",
    "BREAKER",
    "PARKED",
    "DRAINS IN",
    "BLOCKED BY",
)
SPARE = ("SLOPE", "DRAINS IN", "IN FLIGHT", "OLDEST")  # the least missed first
CLEAR = "\x1b[H\x1b[2J"


class Slopes:
    """How fast each partner's backlog grows, from what was seen before."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[str, int]]] = deque(maxlen=WINDOW)

    def measure(self, now: float, waiting: dict[str, int]) -> dict[str, float]:
        """Events per minute by partner, for those seen before. `now` in seconds of any steady clock."""
        self._seen.append((now, waiting))
        then, before = self._seen[0]
        if now <= then:
            return {}
        return {name: (count - before[name]) * 60 / (now - then) for name, count in waiting.items() if name in before}


@app.command("backlog", short_help="Show what waits, and for what.")
def backlog(
    watch: Annotated[
        bool, typer.Option("--watch", help="Again every 2 s until Ctrl-C, with the slope; with --json a line each.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what waits: per partner and destination how much, how old, what it waits for, and the time to drain."""
    from storage import backlog as books

    slopes = Slopes()
    with session() as now:
        while True:
            found = now.store.run(books.backlog)
            measured = slopes.measure(time.monotonic(), {partner.partner: partner.waiting for partner in found})
            if watch and not json and sys.stdout.isatty():
                print(CLEAR, end="")
            _print(found, measured, json, watch)
            sys.stdout.flush()
            if not watch:
                return
            time.sleep(REFRESH_SECONDS)


def document(partner: "Backlog", slope: float | None) -> dict[str, Any]:
    """A partner's backlog for a program."""
    return {
        "partner": partner.partner,
        "removed_at": instant(partner.removed_at),
        "waiting": partner.waiting,
        "undispatched": partner.undispatched,
        "slope_per_minute": None if slope is None else round(slope, 1),
        "oldest_seconds": _rounded(partner.oldest_seconds),
        "lanes": [_lane(lane) for lane in partner.lanes],
    }


def _print(found: "list[Backlog]", slopes: dict[str, float], json: bool, again: bool) -> None:
    if json:
        print_json([document(partner, slopes.get(partner.partner)) for partner in found], on_one_line=again)
        return
    rows: list[tuple[object, ...]] = []
    for partner in found:
        slope = slopes.get(partner.partner)
        shown = None if slope is None else f"{slope:+.0f}/min"
        name = _name(partner.partner, partner.removed_at)
        rows.append((name, "", partner.waiting, shown, age(partner.oldest_seconds), *[""] * 5))
        rows += [("", *_cells(lane)) for lane in partner.lanes]
    print_table(COLUMNS, rows, "no partners", spare=SPARE, flow="BLOCKED BY")


def _cells(lane: "Lane") -> tuple[object, ...]:
    name, oldest = _name(lane.destination, lane.removed_at), age(lane.oldest_seconds)
    drains, blocked = age(lane.drain_seconds), lane.blocked_by or ""
    return name, lane.waiting, "", oldest, lane.in_flight, lane.breaker, lane.parked, drains, blocked


def _name(name: str, removed_at: "datetime | None") -> str:
    """A name that may be another's by now says so."""
    return name if removed_at is None else f"{name} (removed)"


def _lane(lane: "Lane") -> dict[str, Any]:
    return {
        "destination": lane.destination,
        "state": lane.state,
        "removed_at": instant(lane.removed_at),
        "waiting": lane.waiting,
        "in_flight": lane.in_flight,
        "breaker": lane.breaker,
        "parked": lane.parked,
        "oldest_seconds": _rounded(lane.oldest_seconds),
        "head": lane.head,
        "head_sequence": lane.head_sequence,
        "blocked_by": lane.blocked_by,
        "drain_seconds": _rounded(lane.drain_seconds),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(max(0.0, seconds), 3)
