"""Destinations over the API."""

from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter
from starlette.responses import Response

from ops.api.means import LIMIT, Admin, Cursor, Limit, Operator, UseMeans, Viewer, cut, key_of, page
from ops.api.shapes import (
    Destination,
    DestinationEdit,
    DestinationMade,
    DestinationNew,
    DestinationShown,
    Page,
    Removed,
    Rotated,
    Rotation,
    Standing,
)
from ops.api.versions import IfMatch, require_match, tag
from ops.cli.destination import document, judge_url, listed, shown
from ops.cli.options import OVERLAP
from storage import destinations

router = APIRouter(tags=["destinations"])


@router.get("/destinations", response_model=Page[Destination])
async def list_destinations(means: UseMeans, limit: Limit = LIMIT, cursor: Cursor = None) -> Any:
    """List the destinations, by name. Of a URL only the host is told."""
    (after,) = key_of(cursor, str) or ("",)
    vault = means.vault
    found = await means.desk.run(lambda connection: listed(connection, vault, after=after, limit=limit + 1))
    return page(*cut(found, limit, lambda destination: (destination["name"],)))


@router.post("/destinations", response_model=DestinationMade, status_code=201, response_model_exclude_unset=True)
async def add_destination(means: UseMeans, who: Admin, new: DestinationNew, response: Response) -> Any:
    """Add a destination. It receives nothing before it is subscribed to a partner."""
    name, secret, options = _asked(new)
    vault = means.vault
    judge_url(means.settings.networks, options.get("url"))

    def add(connection: sa.Connection) -> dict[str, Any]:
        made = destinations.add(connection, vault, name, options, secret, actor=who.name)
        return document(destinations.show(connection, vault, name)) | ({"secret": made} if made else {})

    added = await means.desk.run(add)
    response.headers["etag"] = tag({field: value for field, value in added.items() if field != "secret"})
    return added


@router.get("/destinations/{name}", response_model=DestinationShown)
async def show_destination(means: UseMeans, who: Viewer, name: str, response: Response) -> Any:
    """Show a destination: its policy, its breaker, who feeds it; to an admin its URL exactly as it is called.

    Others are told the URL's host only: path and query may hold secrets.
    """
    vault = means.vault
    found = await means.desk.run(lambda connection: shown(connection, vault, name))
    response.headers["etag"] = tag(found)
    return found if who.may("admin") else found | {"url": destinations.told_url(vault, found["url"])}


@router.patch("/destinations/{name}", response_model=Destination)
async def edit_destination(
    means: UseMeans, who: Admin, name: str, change: DestinationEdit, response: Response, if_match: IfMatch = None
) -> Any:
    """Change what is given, nothing else; effective within 2 s, also for what is being retried."""
    _, _, options = _asked(change)
    vault = means.vault
    judge_url(means.settings.networks, options.get("url"))

    def edit(connection: sa.Connection) -> dict[str, Any]:
        destinations.find(connection, name, lock=True)
        require_match(if_match, document(destinations.show(connection, vault, name)))
        destinations.edit(connection, vault, name, options, actor=who.name)
        return document(destinations.show(connection, vault, name))

    changed = await means.desk.run(edit)
    response.headers["etag"] = tag(changed)
    return changed


@router.delete("/destinations/{name}", response_model=Removed)
async def remove_destination(means: UseMeans, who: Admin, name: str, even_if_waiting: bool = False) -> Any:
    """Send nothing more; events are kept. Refused where something waits, unless that is said: it is parked."""
    parked = await means.desk.do(
        lambda store: destinations.remove(store, name, even_if_waiting=even_if_waiting, actor=who.name)
    )
    return {"name": name, "waiting": parked}


@router.post("/destinations/{name}/pause", response_model=Standing)
async def pause_destination(means: UseMeans, who: Operator, name: str) -> Any:
    """Send nothing to it until it is resumed; what comes for it waits."""
    changed = await means.desk.run(lambda connection: destinations.pause(connection, name, actor=who.name))
    return {"name": name, "state": "paused", "changed": changed}


@router.post("/destinations/{name}/resume", response_model=Standing)
async def resume_destination(means: UseMeans, who: Operator, name: str) -> Any:
    """Send to it again, after a pause or a suspension. What a suspension parked stays parked until it is replayed."""
    was = await means.desk.run(lambda connection: destinations.resume(connection, name, actor=who.name))
    return {"name": name, "state": "active", "changed": was != "active"}


@router.post("/destinations/{name}/reset-breaker", status_code=204)
async def reset_breaker(means: UseMeans, who: Operator, name: str) -> None:
    """Close the breaker: deliveries go out again at once."""
    await means.desk.run(lambda connection: destinations.reset_breaker(connection, name, actor=who.name))


@router.post("/destinations/{name}/rotate-secret", response_model=Rotated)
async def rotate_destination_secret(means: UseMeans, who: Admin, name: str, rotation: Rotation) -> Any:
    """Sign with a new secret from now on, and with the old ones too until the overlap has passed."""
    vault, span = means.vault, OVERLAP if rotation.overlap is None else rotation.overlap

    def rotate(connection: sa.Connection) -> str | None:
        return destinations.rotate_secret(connection, vault, name, rotation.secret, span, actor=who.name)

    return {"name": name, "secret": await means.desk.run(rotate)}


def _asked(given: DestinationEdit | DestinationNew) -> tuple[str, str | None, destinations.Options]:
    """The name, the secret and the options that were sent."""
    told: dict[str, Any] = dict(given)
    name, secret = told.pop("name", ""), told.pop("secret", None)
    if "park_on" in told:
        told["park_on"] = sorted(set(told["park_on"]))
    return name, secret, destinations.Options(**told)  # type: ignore[typeddict-item]
