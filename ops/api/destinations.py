"""Destinations over the API."""

from typing import Any

from fastapi import APIRouter

from ops.api.means import LIMIT, Cursor, Limit, UseMeans, cut, key_of, page
from ops.api.shapes import Destination, DestinationShown, Page
from ops.cli.destination import listed, shown

router = APIRouter(tags=["destinations"])


@router.get("/destinations", response_model=Page[Destination])
async def list_destinations(means: UseMeans, limit: Limit = LIMIT, cursor: Cursor = None) -> Any:
    """List the destinations, by name. Of a URL only the host is told; `show_destination` has it."""
    (after,) = key_of(cursor, str) or ("",)
    vault = means.vault
    found = await means.desk.run(lambda connection: listed(connection, vault, after=after, limit=limit + 1))
    return page(*cut(found, limit, lambda destination: (destination["name"],)))


@router.get("/destinations/{name}", response_model=DestinationShown)
async def show_destination(means: UseMeans, name: str) -> Any:
    """Show a destination: its URL exactly as it is called, its policy, its breaker, who feeds it."""
    vault = means.vault
    return await means.desk.run(lambda connection: shown(connection, vault, name))
