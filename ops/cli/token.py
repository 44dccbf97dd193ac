"""`hookyard token …`: who may come in at the ops port, in which role, for how long."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from domain.values import parse_duration
from ops.cli.options import Json, Name
from ops.cli.output import instant, print_json, print_table, say
from ops.cli.session import session

if TYPE_CHECKING:
    from storage.tokens import Token

app = typer.Typer(help="Tokens: who may come in at the ops port.", no_args_is_help=True)

ROLES = "viewer: looks. operator: also pauses, replays, discards. admin: also edits, secrets, tokens."


@app.command("add", short_help="Add a token; it is shown once.")
def add(
    name: Name,
    role: Annotated[Literal["viewer", "operator", "admin"], typer.Option("--role", metavar="ROLE", help=ROLES)],
    expires: Annotated[
        timedelta | None,
        typer.Option("--expires", parser=parse_duration, metavar="DURATION", help="Its life, such as 90d (for ever)."),
    ] = None,
    json: Json = False,
) -> None:
    """Add a token. It is shown once and not kept; its name stands in the audit for what is done with it."""
    from storage import tokens

    with session() as now:
        token, text = now.store.run(lambda connection: tokens.add(connection, name, role, expires, actor=now.actor))
    if json:
        print_json(document(token) | {"token": text})
        return
    print(f"token {name} added ({role}, {_until(token)})\ntoken {text}")
    say("note: this token is not shown again")


@app.command("list")
def list_(json: Json = False) -> None:
    """List the tokens. What they are is not kept."""
    from storage import tokens

    with session() as now, now.store.begin() as connection:
        found = tokens.listed(connection)
    if json:
        print_json([document(token) for token in found])
        return
    rows = [(token.name, token.role, _until(token), token.created_at) for token in found]
    print_table(("NAME", "ROLE", "VALID", "CREATED"), rows, "no tokens: hookyard token add NAME --role ROLE")


@app.command("revoke", short_help="Let nobody in with it any more.")
def revoke(name: Name) -> None:
    """Let nobody in with it any more; browsers that logged in with it are logged out."""
    from storage import tokens

    with session() as now:
        now.store.run(lambda connection: tokens.revoke(connection, name, actor=now.actor))
    print(f"token {name} revoked")


def document(token: "Token") -> dict[str, Any]:
    """A token for a program: never the token."""
    return {
        "name": token.name,
        "role": token.role,
        "created_at": instant(token.created_at),
        "expires_at": instant(token.expires_at),
        "expired": token.expired,
    }


def _until(token: "Token") -> str:
    if token.expires_at is None:
        return "until revoked"
    return f"{'expired' if token.expired else 'until'} {instant(token.expires_at)}"
