"""Partners over the API."""

from typing import Any

from fastapi import APIRouter

from ops.api.means import LIMIT, Cursor, Limit, UseMeans, cut, key_of, page
from ops.api.shapes import Page, Partner, PartnerShown
from ops.cli.partner import document, shown
from storage import partners

router = APIRouter(tags=["partners"])


@router.get("/partners", response_model=Page[Partner])
async def list_partners(means: UseMeans, limit: Limit = LIMIT, cursor: Cursor = None) -> Any:
    """List the partners, by name."""
    (after,) = key_of(cursor, str) or ("",)
    found = await means.desk.run(lambda connection: partners.listed(connection, after=after, limit=limit + 1))
    items, following = cut(found, limit, lambda partner: (partner.name,))
    return page([document(partner) for partner in items], following)


@router.get("/partners/{name}", response_model=PartnerShown)
async def show_partner(means: UseMeans, name: str) -> Any:
    """Show a partner: its settings and its subscriptions."""
    return await means.desk.run(lambda connection: shown(connection, name))
