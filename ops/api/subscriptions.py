"""Subscriptions over the API."""

from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter

from ops.api.means import UseMeans, page
from ops.api.shapes import Page, Subscription
from ops.cli.output import instant
from storage import destinations, partners, subscriptions

router = APIRouter(tags=["subscriptions"])


@router.get("/subscriptions", response_model=Page[Subscription])
async def list_subscriptions(means: UseMeans, partner: str | None = None, destination: str | None = None) -> Any:
    """List the current subscriptions, all on one page; of a partner or a destination where given."""

    def look(connection: sa.Connection) -> list[subscriptions.Subscription]:
        source = None if partner is None else partners.find(connection, partner).id
        target = None if destination is None else destinations.find(connection, destination).id
        return subscriptions.listed(connection, partner_id=source, destination_id=target)

    return page([document(found) for found in await means.desk.run(look)], None)


def document(subscription: subscriptions.Subscription) -> dict[str, Any]:
    """A subscription for a program."""
    return {
        "partner": subscription.partner,
        "destination": subscription.destination,
        "order": subscription.ordering,
        "types": subscription.types,
        "max_waiting": subscription.max_waiting,
        "from_sequence": subscription.from_seq,
        "created_at": instant(subscription.created_at),
    }
