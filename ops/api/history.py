"""The last day over the API, as series."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Query

from domain.tallies import DESTINATION, PARTNER, SYSTEM
from domain.values import format_duration
from ops.api.events import Since, Until, moment
from ops.api.means import Means, UseMeans
from ops.api.shapes import Across, History
from ops.cli.output import instant
from storage import destinations, history, partners
from storage.errors import Invalid

router = APIRouter(tags=["history"])

Step = Annotated[Literal["1m", "5m", "15m", "1h"], Query(description="How much one value stands for.")]
STEPS = {"1m": 1, "5m": 5, "15m": 15, "1h": 60}  # minutes
HOUR = timedelta(hours=1)


@router.get("/history", response_model=History)
async def system_history(means: UseMeans, since: Since = None, until: Until = None, step: Step = "1m") -> Any:
    """All partners together; null is no data, never zero. The last hour unless asked for more."""
    return await _read(means, SYSTEM, "", since, until, step)


@router.get("/history/partners", response_model=Across)
async def partners_side_by_side(
    means: UseMeans,
    figure: Annotated[Literal["backlog", "oldest_seconds", "parked", "accepted", "delivered"], Query()] = "backlog",
    since: Since = None,
    until: Until = None,
) -> Any:
    """One figure of every partner that had any, by the minute."""
    begin, end = _span(since, until)
    found = await means.desk.run(lambda connection: history.across(connection, PARTNER, figure, since=begin, until=end))
    return {"figure": figure} | _document(found)


@router.get("/history/partners/{name}", response_model=History)
async def partner_history(
    means: UseMeans, name: str, since: Since = None, until: Until = None, step: Step = "1m"
) -> Any:
    """A partner's series; counts by reason or outcome are named like `refused:backlog_full`."""
    await means.desk.run(lambda connection: partners.ids_named(connection, name))
    return await _read(means, PARTNER, name, since, until, step)


@router.get("/history/destinations/{name}", response_model=History)
async def destination_history(
    means: UseMeans, name: str, since: Since = None, until: Until = None, step: Step = "1m"
) -> Any:
    """A destination's series: attempts by outcome, latency and lag in seconds, breaker (0: closed, 2: open)."""
    await means.desk.run(lambda connection: destinations.ids_named(connection, name))
    return await _read(means, DESTINATION, name, since, until, step)


async def _read(means: Means, kind: str, name: str, since: str | None, until: str | None, step: str) -> dict[str, Any]:
    begin, end = _span(since, until)
    size = timedelta(minutes=STEPS[step])

    def look(connection: sa.Connection) -> history.History:
        return history.read(connection, kind, name, since=begin, until=end, step=size)

    return _document(await means.desk.run(look))


def _document(found: history.History) -> dict[str, Any]:
    return {
        "since": instant(found.since),
        "until": instant(found.until),
        "step": format_duration(found.step),
        "series": found.series,
    }


def _span(since: str | None, until: str | None) -> tuple[datetime, datetime]:
    """To this moment, from an hour before, unless said otherwise. Raises: Invalid beyond what is kept."""
    end = moment(until) or datetime.now(UTC)
    begin = moment(since) or end - HOUR
    if not timedelta(0) <= end - begin <= 2 * history.KEPT:
        raise Invalid(f"since and until: from 0 to {2 * history.KEPT // HOUR}h are allowed")
    return begin, end
