"""Subscriptions over the API."""

from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter

from ops.api.means import Admin, UseMeans, page
from ops.api.shapes import Page, Subscribed, Subscription, SubscriptionNew, Unsubscribed
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


@router.put("/subscriptions/{partner}/{destination}", response_model=Subscribed)
async def subscribe(means: UseMeans, who: Admin, partner: str, destination: str, wanted: SubscriptionNew) -> Any:
    """Deliver what the partner sends from now on to the destination; where it is subscribed already, with these
    settings from now on. The same again changes nothing.
    """

    def work(connection: sa.Connection) -> subscriptions.Subscribed:
        return subscriptions.subscribe(
            connection,
            partner,
            destination,
            types=wanted.types,
            ordering=wanted.order,
            max_waiting=wanted.max_waiting,
            actor=who.name,
        )

    done = await means.desk.run(work)
    return {
        "partner": partner,
        "destination": destination,
        "outcome": done.outcome,
        "from_sequence": done.from_seq,
    }


@router.delete("/subscriptions/{partner}/{destination}", response_model=Unsubscribed)
async def unsubscribe(means: UseMeans, who: Admin, partner: str, destination: str) -> Any:
    """Deliver nothing accepted from now on; what was accepted before is still delivered."""

    def work(connection: sa.Connection) -> int:
        return subscriptions.unsubscribe(connection, partner, destination, actor=who.name)

    return {"partner": partner, "destination": destination, "waiting": await means.desk.run(work)}


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
