"""Where the pages are."""

from __future__ import annotations

from pathlib import Path

from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from ops.api.means import Means
from ops.dashboard import bulk, events, flows, installation
from ops.dashboard.front import STATIC, Make, front, shown

PAGES: dict[str, Make] = {
    "/": flows.overview,
    "/partners": flows.all_partners,
    "/partners/{name}": flows.partner,
    "/destinations": flows.all_destinations,
    "/destinations/{name}": flows.destination,
    "/events": events.search,
    "/events/{id:path}": events.event,
    "/parked": bulk.parked,
    "/replays": bulk.replays,
    "/replays/{id}": bulk.replay,
    "/system": installation.installation,
    "/doctor": installation.findings,
}


def routes(means: Means, metrics_dir: Path | None) -> list[BaseRoute]:
    """The pages, and what they load."""
    made = front(means, metrics_dir)
    return [
        *(Route(path, shown(made, make)) for path, make in PAGES.items()),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
