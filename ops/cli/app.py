"""The tree of commands."""

import typer

from ops.cli import backlog, destination, event, partner, processes, replay, send, subscription

app = typer.Typer(
    help="A durable, ordered webhook pipeline.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(processes.up_app)
app.add_typer(partner.app, name="partner")
app.add_typer(destination.app, name="destination")
app.add_typer(subscription.app)
app.add_typer(send.app)
app.add_typer(event.app, name="event")
app.add_typer(event.top)
app.add_typer(replay.app)
app.add_typer(backlog.app)
app.add_typer(processes.app)
