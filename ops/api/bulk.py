"""Replays, discards and backfills over the API: begun in the background, counted as they go, steered on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.responses import JSONResponse, Response

from domain.values import format_rate
from ops.access import Caller
from ops.api.events import moment
from ops.api.means import LIMIT, Cursor, Limit, Means, Operator, UseMeans, cut, key_of, page
from ops.api.shapes import BackfillNew, BulkRequest, Counted, DiscardNew, Kind, Page, ReplayNew
from ops.cli.output import instant
from ops.cli.replay import Asked
from ops.cli.replay import document as counted_document
from storage import backfills, replays, requests
from storage.errors import Invalid
from storage.requests import Counts
from storage.transactions import Store

router = APIRouter(tags=["replays, discards, backfills"])

SOON_SECONDS = 1.0  # a small one has ended by then, and the answer says so
BEGUN: dict[int | str, dict[str, Any]] = {
    200: {"model": Counted, "description": "The dry run's counts."},
    202: {"model": BulkRequest, "description": "Begun; perhaps done already."},
}
Id = Annotated[str, Path(alias="id", pattern="^rpl_[0-9]{1,18}$", examples=["rpl_1"])]
Begin = Callable[[Store, Callable[[int], None]], Counts]


@router.post("/replays", status_code=202, response_model=BulkRequest, responses=BEGUN)
async def begin_replay(means: UseMeans, who: Operator, new: ReplayNew) -> Response:
    """Send again what is parked, or by `state` what was delivered or discarded; with a fresh retry budget."""
    asked = Asked(new.events, new.partner, new.destination, new.state, *_narrowed(new))
    return await _decide(means, who, "replay", asked, new.rate, new.dry_run, None)


@router.post("/discards", status_code=202, response_model=BulkRequest, responses=BEGUN)
async def begin_discard(means: UseMeans, who: Operator, new: DiscardNew) -> Response:
    """End parked deliveries for good; only a replay of what is discarded brings them back."""
    if not new.why.strip() or not new.why.isprintable():
        raise Invalid("why: a reason is printable text")
    asked = Asked(new.events, new.partner, new.destination, None, *_narrowed(new))
    return await _decide(means, who, "discard", asked, new.rate, new.dry_run, new.why)


@router.post("/backfills", status_code=202, response_model=BulkRequest, responses=BEGUN)
async def begin_backfill(means: UseMeans, who: Operator, new: BackfillNew) -> Response:
    """Deliver stored events, accepted before the destination was subscribed, in order."""
    pair, span = (new.partner, new.destination), backfills.Span(moment(new.since), moment(new.until))
    if new.dry_run:
        counts = await means.desk.run(lambda connection: backfills.count(connection, *pair, span))
        return JSONResponse(counted_document(counts))
    return await _begin(
        means, lambda store, begun: backfills.run(store, *pair, span, actor=who.name, rate=new.rate, begun=begun)
    )


@router.get("/replays", response_model=Page[BulkRequest])
async def list_bulk_requests(
    means: UseMeans, kind: Kind | None = None, limit: Limit = LIMIT, cursor: Cursor = None
) -> Any:
    """List replays, discards and backfills, the newest first, with how far each is."""
    (before,) = key_of(cursor, int) or (None,)
    found = await means.desk.run(
        lambda connection: requests.listed(connection, limit=limit + 1, before=before, kind=kind)
    )
    items, following = cut(found, limit, lambda asked: (asked.id,))
    return page([document(asked) for asked in items], following)


@router.get("/replays/{id}", response_model=BulkRequest)
async def show_bulk_request(means: UseMeans, name: Id) -> Any:
    """Show how far a replay, discard or backfill is."""
    return document(await means.desk.run(lambda connection: requests.find(connection, name)))


@router.post("/replays/{id}/pause", response_model=BulkRequest)
async def pause_bulk_request(means: UseMeans, who: Operator, name: Id) -> Any:
    """Halt it after the deliveries it is at."""
    return await _steer(means, who, name, "pause")


@router.post("/replays/{id}/resume", response_model=BulkRequest)
async def resume_bulk_request(means: UseMeans, who: Operator, name: Id) -> Any:
    """Let it go on."""
    return await _steer(means, who, name, "resume")


@router.post("/replays/{id}/cancel", response_model=BulkRequest)
async def cancel_bulk_request(means: UseMeans, who: Operator, name: Id) -> Any:
    """End it: what is done stays done, the rest is left as it is."""
    return await _steer(means, who, name, "cancel")


def document(asked: requests.Asked) -> dict[str, Any]:
    """A request for a program."""
    return {
        "id": requests.name_of(asked.id),
        "kind": asked.kind,
        "actor": asked.actor,
        "state": asked.state,
        "selection": asked.selection,
        "why": asked.why,
        "rate": None if asked.rate is None else format_rate(asked.rate),
        "expected": asked.expected,
        "selected": asked.selected,
        "done": asked.done,
        "skipped": asked.skipped,
        "failed": asked.failed,
        "created_at": instant(asked.created_at),
        "finished_at": instant(asked.finished_at),
    }


def _narrowed(new: ReplayNew | DiscardNew) -> tuple[Any, ...]:
    return None if new.reason is None else new.reason.value, moment(new.since), moment(new.until)


async def _decide(
    means: Means, who: Caller, kind: replays.Kind, asked: Asked, rate: float | None, dry_run: bool, why: str | None
) -> Response:
    if not asked.told():
        raise Invalid("name events, or select by partner, destination, state, reason, since or until")
    selection = await means.desk.run(asked.selection)
    if dry_run:
        counts = await means.desk.run(lambda connection: replays.count(connection, kind, selection))
        return JSONResponse(counted_document(counts))
    return await _begin(
        means,
        lambda store, begun: replays.run(store, kind, selection, actor=who.name, why=why, rate=rate, begun=begun),
    )


async def _begin(means: Means, work: Begin) -> Response:
    """The request goes on in the background; its row is the answer, as it stands when it ends or a moment later."""
    loop = asyncio.get_running_loop()
    begun: asyncio.Future[int] = loop.create_future()

    def note(identity: int) -> None:
        loop.call_soon_threadsafe(begun.set_result, identity)

    task = means.background.begin(lambda store: work(store, note))
    await asyncio.wait({begun, task}, return_when=asyncio.FIRST_COMPLETED)
    if not begun.done():
        await task  # raises what kept it from beginning
    identity = await begun
    await asyncio.wait({task}, timeout=SOON_SECONDS)
    name = requests.name_of(identity)
    found = await means.desk.run(lambda connection: requests.find(connection, name))
    return JSONResponse(document(found), 202, {"location": f"/api/v1/replays/{name}"})


async def _steer(means: Means, who: Caller, name: str, action: requests.Action) -> dict[str, Any]:
    return document(await means.desk.run(lambda connection: requests.steer(connection, name, action, actor=who.name)))
