"""The tree of commands."""

from typing import Annotated

import typer

from domain.version import VERSION
from ops.cli import audit, backlog, destination, event, partner, processes, replay, send, subscription, tail, token

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        print(f"hookyard {VERSION}")
        raise typer.Exit


@app.callback()
def hookyard(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A durable, ordered webhook pipeline."""


app.add_typer(processes.up_app)
app.add_typer(partner.app, name="partner")
app.add_typer(destination.app, name="destination")
app.add_typer(subscription.app)
app.add_typer(send.app)
app.add_typer(event.app, name="event")
app.add_typer(event.top)
app.add_typer(replay.app)
app.add_typer(backlog.app)
app.add_typer(tail.app)
app.add_typer(audit.app)
app.add_typer(token.app, name="token")
app.add_typer(processes.app)
