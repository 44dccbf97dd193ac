"""The system over the API: what waits, how the processes and servers do, whether all is well."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query

from domain.problems import Problem
from domain.version import VERSION
from ops.api.means import Refused, UseMeans
from ops.api.shapes import Backlog, Doctor, System
from ops.asking import in_daemon_thread
from ops.cli.output import instant
from ops.doctor import document, examine
from storage import installation

router = APIRouter(tags=["system"])


@router.get("/backlog", response_model=list[Backlog])
async def backlog(
    means: UseMeans, partner: Annotated[str | None, Query(description="Only of this partner.")] = None
) -> Any:
    """What waits and why, per partner and destination: what `hookyard backlog --json` prints, with the slope."""
    found = await means.watch.backlogs()
    if found is None:
        raise Refused(Problem(503, "unavailable", "The database does not answer."), {"retry-after": "1"})
    return [told for told in found if partner is None or told["partner"] == partner]


@router.get("/system", response_model=System)
async def system(means: UseMeans) -> Any:
    """Processes, workers, shards with their epochs, bounded queues, servers, sizes of tables."""
    found, roles, queues, redis = await asyncio.gather(
        means.desk.run(installation.examine), means.watch.roles(), means.watch.queues(), means.watch.redis()
    )
    return {
        "version": VERSION,
        "roles": {slot: {"status": role.status, "amiss": list(role.amiss)} for slot, role in roles.items()},
        "workers": [asdict(worker) | {"started_at": instant(worker.started_at)} for worker in found.workers],
        "shards": [asdict(shard) for shard in found.shards],
        "queues": queues,
        "tables": [asdict(table) for table in found.tables],
        "database": asdict(found.database),
        "redis": asdict(redis),
    }


@router.get("/doctor", response_model=Doctor)
async def doctor() -> Any:
    """What `hookyard doctor` finds: settings, schema, servers, durability, clocks, leases, stuck work."""
    return document(await in_daemon_thread(examine))
