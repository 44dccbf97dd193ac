"""What rq has to do, and what it has done lately."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import redis

from workers.jobs import rq_on

if TYPE_CHECKING:
    from rq.job import Job as RqJob

SHOWN = 12
LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Job:
    """A job that has ended; `count` is how much it did, None where it failed."""

    name: str
    state: str
    ended_at: datetime | None
    count: int | None


@dataclass(frozen=True, slots=True)
class Jobs:
    """How many jobs wait, how many of the last ones failed, and which ended last."""

    waiting: int
    failed: int
    ended: list[Job]


def look(redis_url: str) -> Jobs | None:
    """The queue as it is; None: Redis does not answer."""
    try:
        with rq_on(redis_url) as (queue, _):
            done, failed = queue.finished_job_registry, queue.failed_job_registry
            ids = [
                name
                for registry in (done, failed)
                for name in registry.get_job_ids(end=SHOWN - 1, desc=True, cleanup=False)
            ]
            found = queue.job_class.fetch_many(ids, queue.connection, queue.serializer)
            ended = [_job(job) for job in found if job is not None]
            ended.sort(key=lambda job: job.ended_at or LONG_AGO, reverse=True)
            return Jobs(queue.count, failed.get_job_count(cleanup=False), ended[:SHOWN])
    except (redis.RedisError, OSError, ValueError):
        return None


def _job(job: RqJob) -> Job:
    at = job.ended_at
    aware = None if at is None else at.replace(tzinfo=UTC) if at.tzinfo is None else at
    value = job.return_value()
    return Job(job.id, str(job.get_status(refresh=False).value), aware, value if isinstance(value, int) else None)
