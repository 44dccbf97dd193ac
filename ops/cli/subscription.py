"""`hookyard subscribe`, `hookyard unsubscribe`: which destination receives what of which partner."""

from typing import Annotated, Literal

import typer

from domain.values import counted
from ops.cli.options import DestinationName, Json, PartnerName
from ops.cli.output import print_json
from ops.cli.session import session

app = typer.Typer()


@app.command("subscribe", short_help="Deliver a partner's events to a destination.")
def subscribe(
    partner: PartnerName,
    destination: DestinationName,
    types: Annotated[
        list[str] | None,
        typer.Option("--types", metavar="GLOB", help="Only events of such types (* and ?); may be repeated."),
    ] = None,
    order: Annotated[
        Literal["partner", "key", "none"],
        typer.Option(
            "--order",
            metavar="partner|key|none",
            help="partner: one by one in sequence. key: so per value of the partner's order key, different "
            "ones side by side. none: as fast as the destination allows.",
        ),
    ] = "partner",
    max_waiting: Annotated[
        int,
        typer.Option("--max-waiting", metavar="N", help="Beyond it, while the destination is down, events are parked."),
    ] = 1_000_000,
    json: Json = False,
) -> None:
    """Deliver what the partner sends from now on to the destination. Again with other options: change that.

    Events accepted before are for it only by `hookyard backfill`.
    """
    from storage import subscriptions

    with session() as now:
        done = now.store.run(
            lambda connection: subscriptions.subscribe(
                connection,
                partner,
                destination,
                types=types or [],
                ordering=order,
                max_waiting=max_waiting,
                actor=now.actor,
            )
        )
    if json:
        told = {"partner": partner, "destination": destination, "outcome": done.outcome, "from_sequence": done.from_seq}
        print_json(told)
        return
    if done.outcome == "unchanged":
        print(f"{destination} is subscribed to {partner} already, with these options")
    else:
        print(f"{destination} receives events of {partner} from sequence {done.from_seq} on")


@app.command("unsubscribe", short_help="Deliver nothing accepted from now on.")
def unsubscribe(partner: PartnerName, destination: DestinationName) -> None:
    """Deliver nothing accepted from now on; what was accepted before is still delivered."""
    from storage import subscriptions

    with session() as now:
        left = now.store.run(
            lambda connection: subscriptions.unsubscribe(connection, partner, destination, actor=now.actor)
        )
    waits = f": {counted(left, 'delivery still waits', 'deliveries still wait')}" if left else ""
    print(f"{destination} receives nothing new of {partner}{waits}")
