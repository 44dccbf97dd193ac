"""The pages about what moves and what waits: all of it, one partner, one destination."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ops.access import caller
from ops.api import destinations, partners, system
from ops.api.means import MOST
from ops.dashboard.front import Front, asked
from storage import figures
from storage.destinations import ids_named

ROWS = 100  # of the overview: the worst ones, and who looks for another has its name
SPANS = {"1h": "1m", "6h": "5m", "24h": "15m"}  # how far back graphs go, and what one value stands for


async def overview(front: Front, request: Request) -> Response:
    """How much comes in and goes out, what waits, and for whom it is worst."""
    backlogs, flow = await asyncio.gather(system.backlog(front.means), front.flow.answer())
    name = asked(request, "partner")["partner"]
    matching = [row for row in backlogs if name is None or name in row["partner"]]
    rows = sorted((summary(row) for row in matching), key=lambda row: row["worse"], reverse=True)
    ages = [row["oldest_seconds"] for row in backlogs if row["oldest_seconds"] is not None]
    return front.page(
        request,
        "overview.html",
        rows=rows[:ROWS],
        matching=len(rows),
        partners=len(backlogs),
        rate_in=front.paces.measure("accepted", flow.accepted if flow else None),
        rate_out=front.paces.measure("delivered", flow.delivered if flow else None),
        flow=flow,
        waiting=sum(row["waiting"] for row in backlogs),
        oldest=max(ages, default=None),
        parked=sum(lane["parked"] for row in backlogs for lane in row["lanes"]),
    )


def summary(row: dict[str, Any]) -> dict[str, Any]:
    """A partner's line: its backlog, when that will be gone, and the lane that holds it up most."""
    waiting = [lane for lane in row["lanes"] if lane["waiting"]]
    drains = [lane["drain_seconds"] for lane in waiting]
    blocked = [lane for lane in waiting if lane["blocked_by"]]
    oldest = row["oldest_seconds"] or 0.0
    return row | {
        "parked": sum(lane["parked"] for lane in row["lanes"]),
        "drain_seconds": None if None in drains else max(drains, default=0.0 if not row["waiting"] else None),
        "blocker": max(blocked, key=lambda lane: lane["oldest_seconds"] or 0.0, default=None),
        "worse": (oldest, row["waiting"], sum(lane["parked"] for lane in row["lanes"])),
    }


async def partner(front: Front, request: Request) -> Response:
    """One partner: its lanes and their heads, what was accepted and refused, its limits."""
    name = request.path_params["name"]
    told, backlogs = await asyncio.gather(
        partners.show_partner(front.means, name, Response()), system.backlog(front.means, name)
    )
    row = next((summary(row) for row in backlogs if row["removed_at"] is None), None)
    return front.page(request, "partner.html", partner=told, row=row, **_span(request))


async def all_destinations(front: Front, request: Request) -> Response:
    """Every destination with how it does, by name."""
    cursor = asked(request, "cursor")["cursor"]
    told, backlogs = await asyncio.gather(
        destinations.list_destinations(front.means, cursor=cursor), system.backlog(front.means)
    )
    return front.page(request, "destinations.html", page=told, lanes=_lanes(backlogs))


async def destination(front: Front, request: Request) -> Response:
    """One destination: its breaker and limits, its attempts, what waits and what is parked."""
    name = request.path_params["name"]
    told, backlogs, parked = await asyncio.gather(
        destinations.show_destination(front.means, caller(request), name, Response()),
        system.backlog(front.means),
        front.means.desk.run(lambda connection: figures.parked_by_reason(connection, ids_named(connection, name))),
    )
    lanes = _lanes(backlogs).get(name, [])
    return front.page(request, "destination.html", destination=told, lanes=lanes, parked=parked, **_span(request))


async def all_partners(front: Front, request: Request) -> Response:
    """Every partner with its settings in a line, by name."""
    cursor = asked(request, "cursor")["cursor"]
    return front.page(request, "partners.html", page=await partners.list_partners(front.means, cursor=cursor))


async def names(front: Front) -> dict[str, Any]:
    """Partners and destinations to choose from, as many as a page has."""
    sending, receiving = await asyncio.gather(
        partners.list_partners(front.means, limit=MOST), destinations.list_destinations(front.means, limit=MOST)
    )
    return {
        "partners": [row["name"] for row in sending["items"]],
        "destinations": [row["name"] for row in receiving["items"]],
    }


def _lanes(backlogs: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The lanes of each destination, those with the oldest delivery first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in backlogs:
        for lane in row["lanes"]:
            found.setdefault(lane["destination"], []).append(lane | {"partner": row["partner"]})
    for lanes in found.values():
        lanes.sort(key=lambda lane: lane["oldest_seconds"] or 0.0, reverse=True)
    return found


def _span(request: Request) -> dict[str, Any]:
    """How far back the graphs go."""
    span = request.query_params.get("span", "1h")
    span = span if span in SPANS else "1h"
    return {"span": span, "step": SPANS[span], "all_spans": list(SPANS)}
