"""The page about the installation: processes, shards, queues, servers, tables; and who did what."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from ops.api.audit import list_audit
from ops.api.system import doctor, system
from ops.dashboard.front import Front, asked
from storage.history import KEPT
from storage.log import DEDUPE_WINDOW

FIELDS = ("subject", "actor", "action", "since", "until")
ROWS = 30
FULL = {  # what happens at the bound of each queue
    "ingest": "503 and Retry-After",
    "ingest_commit": "blocks briefly, then 503",
    "stream": "the hint is dropped: the log has it",
    "lanes": "the lane reads the log instead",
    "journal": "its lanes wait",
}


async def installation(front: Front, request: Request) -> Response:
    """How the processes and servers do."""
    fields = asked(request, *FIELDS, "cursor")
    found, audit, jobs = await asyncio.gather(
        system(front.means), list_audit(front.means, limit=ROWS, **fields), front.means.watch.jobs()
    )
    retained = {"history": KEPT, "dedupe": DEDUPE_WINDOW}
    return front.page(request, "system.html", system=found, audit=audit, full=FULL, retained=retained, jobs=jobs)


async def findings(front: Front, request: Request) -> Response:
    """What `hookyard doctor` finds."""
    return front.page(request, "doctor.html", doctor=await doctor())
