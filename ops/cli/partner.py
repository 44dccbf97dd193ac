"""`hookyard partner …`: who may send to us."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from domain.values import counted, format_rate
from domain.verification import schemes
from ops.cli.options import (
    OVERLAP,
    Json,
    Name,
    Overlap,
    Yes,
    agreed_to_remove,
    optional_rate,
    rate_or_none,
    read_secret,
    taking,
    wrong,
)
from ops.cli.output import instant, print_fields, print_json, print_table, say
from ops.cli.session import session

if TYPE_CHECKING:
    import sqlalchemy as sa

    from storage.partners import Options, Partner

app = typer.Typer(help="Partners: who sends to us.", no_args_is_help=True)


def _verify(name: str, metavar: str, told: str) -> Any:
    return Annotated[str | None, typer.Option(f"--verify-{name}", metavar=metavar, help=told)]


Verify = Annotated[
    str | None,
    typer.Option(
        "--verify",
        metavar="SCHEME",
        help="How the partner proves who it is. With none, the default, anybody who can reach the endpoint may post. "
        f"Known are {', '.join(schemes())}.",
    ),
]
Secret = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        metavar="SECRET",
        help="- reads it from stdin, @FILE from a file; several are valid at once. Made and shown once if not given. "
        "With basic it is user:password, with bearer the token.",
    ),
]
SOURCE = "header:NAME, json:/a/json/pointer or none"
OPTIONS: dict[str, Any] = {
    "verify_header": _verify("header", "NAME", "The header with the signature (hmac) or the key (api-key: x-api-key)."),
    "verify_algorithm": _verify("algorithm", "sha1|sha256|sha512", "Of hmac (default sha256)."),
    "verify_encoding": _verify("encoding", "hex|base64", "Of the signature (default hex)."),
    "verify_prefix": _verify("prefix", "TEXT", "Before the signature, as sha256= (default nothing)."),
    "verify_content": _verify(
        "content",
        "TEMPLATE",
        "What is signed: text and {body}, {timestamp}, {id}, {url}, {header:NAME} (default {body}).",
    ),
    "verify_timestamp": _verify(
        "timestamp", "NAME", "The header of {timestamp}, or with = at its end a field of the signature's header, as t=."
    ),
    "verify_id": _verify("id", "NAME", "The header of {id} (default webhook-id)."),
    "verify_url": _verify("url", "URL", "The URL that the provider was given, where that is signed too."),
    "max_backlog": Annotated[
        int | None,
        typer.Option("--max-backlog", metavar="N", help="Events that may wait before POSTs get 429 (default 100000)."),
    ],
    "on_backlog_full": Annotated[
        str | None,
        typer.Option(
            "--on-backlog-full",
            metavar="reject|accept",
            help="accept stores events beyond the limit, for senders that soon give up (default: by the scheme).",
        ),
    ],
    "rate": Annotated[
        float | None,
        typer.Option(
            "--rate", parser=rate_or_none, metavar="N/s", help="Events per second; none: unlimited (default)."
        ),
    ],
    "max_body": Annotated[
        int | None,
        typer.Option("--max-body", metavar="BYTES", help="1 to 104857600 (default 1048576, which is 1 MiB)."),
    ],
    "dedupe": Annotated[
        str | None, typer.Option("--dedupe", metavar="SOURCE", help=f"What makes two POSTs the same event: {SOURCE}.")
    ],
    "type_": Annotated[
        str | None, typer.Option("--type", metavar="SOURCE", help=f"Where an event's type is: {SOURCE}.")
    ],
    "order_key": Annotated[
        str | None, typer.Option("--order-key", metavar="SOURCE", help=f"Where an event's order key is: {SOURCE}.")
    ],
}


@app.command("add")
@taking(OPTIONS)
def add(name: Name, verify: Verify = None, secret: Secret = None, json: Json = False, **given: Any) -> None:
    """Add a partner: it may POST to /in/NAME from now on."""
    from storage import partners

    options = _options(given | {"verify": verify})
    secrets = _secrets(secret)
    with session() as now:
        if verify is None and not now.settings.ingest_bind.is_loopback:
            raise wrong(
                f"ingest listens on {now.settings.ingest_bind}, beyond this machine: say --verify none if anybody "
                "who can reach it may post, else a scheme",
                "--verify",
            )
        partner, made = now.store.run(
            lambda connection: partners.add(connection, now.vault_if_known, name, options, secrets, actor=now.actor)
        )
        where = f"http://{now.settings.ingest_bind}/in/{name}"
    _told(partner, made, json, f"partner {name} added: POST {where}")


@app.command("list")
def list_(json: Json = False) -> None:
    """List the partners."""
    from storage import partners

    with session() as now, now.store.begin() as connection:
        found = partners.listed(connection)
    if json:
        print_json([document(partner) for partner in found])
        return
    rows = [(p.name, p.state, p.verify, p.max_backlog, _rate(p), p.created_at) for p in found]
    columns = ("NAME", "STATE", "VERIFY", "MAX BACKLOG", "RATE", "CREATED")
    print_table(columns, rows, "no partners: hookyard partner add NAME", spare=("CREATED", "RATE"))


@app.command("show")
def show(name: Name, json: Json = False) -> None:
    """Show a partner: its settings and its subscriptions."""
    with session() as now, now.store.begin() as connection:
        told = shown(connection, name)
    if json:
        print_json(told)
        return
    feeds = [f"{s['destination']} ({', '.join(s['types'] or ['every type'])})" for s in told["subscriptions"]]
    print_fields(told | {"subscriptions": feeds})


@app.command("edit", short_help="Change the given options, nothing else.")
@taking(OPTIONS)
def edit(name: Name, verify: Verify = None, secret: Secret = None, json: Json = False, **given: Any) -> None:
    """Change the given options, nothing else; effective within 2 s. --secret goes with another --verify only."""
    from storage import partners

    options = _options(given | {"verify": verify})
    if not options and not secret:
        raise wrong("no option to change is given")
    secrets = _secrets(secret)
    with session() as now:
        partner, made = now.store.run(
            lambda connection: partners.edit(connection, now.vault_if_known, name, options, secrets, actor=now.actor)
        )
    _told(partner, made, json, f"partner {name} changed")


@app.command("pause", short_help="Hold its deliveries; events are still accepted.")
def pause(name: Name) -> None:
    """Hold the partner's deliveries; events are still accepted, up to the backlog's limit."""
    _set_state(name, "paused")


@app.command("resume")
def resume(name: Name) -> None:
    """Deliver the partner's events again."""
    _set_state(name, "active")


@app.command("rotate-secret", short_help="Accept a new secret from now on.")
def rotate_secret(
    name: Name,
    secret: Annotated[
        str | None, typer.Option("--secret", metavar="SECRET", help="- reads stdin, @FILE a file; else one is made.")
    ] = None,
    overlap: Overlap = None,
    json: Json = False,
) -> None:
    """Accept a new secret from now on; the old ones too, until the overlap has passed."""
    from storage import partners

    given = None if secret is None else read_secret(secret)
    span = OVERLAP if overlap is None else overlap
    with session() as now:
        made = now.store.run(
            lambda connection: partners.rotate_secret(connection, now.vault, name, given, span, actor=now.actor)
        )
    if json:
        print_json({"name": name, "secret": made})
        return
    print(f"partner {name} has a new secret")
    _tell_secret(made)


@app.command("remove", short_help="Accept nothing more; its events are kept.")
def remove(name: Name, yes: Yes = False) -> None:
    """Accept nothing from the partner any more; its events are kept. What waits is still delivered: a pause ends.

    Where something waits, it asks on a terminal and needs --yes elsewhere.
    """
    from storage import partners

    with session() as now:
        left = now.store.run(lambda connection: partners.waiting(connection, name))
        waits = counted(left.total, "delivery waits and will", "deliveries wait and will")
        agreed = yes or agreed_to_remove(f"partner {name}", f"{waits} still be made" if left else "")
        left = now.store.run(
            lambda connection: partners.remove(connection, name, even_if_waiting=agreed, actor=now.actor)
        )
    waits = f": {counted(left.total, 'delivery that waits', 'deliveries that wait')} will still be made" if left else ""
    print(f"partner {name} removed{waits}")


def shown(connection: "sa.Connection", name: str) -> dict[str, Any]:
    """A partner with its subscriptions, for a program. Raises: NotFound."""
    from storage import partners, subscriptions

    partner = partners.find(connection, name)
    subscribed = subscriptions.listed(connection, partner_id=partner.id)
    feeds = [{"destination": s.destination, "types": s.types, "order": s.ordering} for s in subscribed]
    return document(partner) | {"subscriptions": feeds}


def document(partner: "Partner") -> dict[str, Any]:
    """A partner for a program."""
    return {
        "name": partner.name,
        "state": partner.state,
        "verify": partner.verify,
        "verify_options": partner.verify_options,
        "max_backlog": partner.max_backlog,
        "on_backlog_full": partner.on_backlog_full,
        "rate": _rate(partner),
        "max_body": partner.max_body,
        "dedupe": partner.dedupe,
        "type": partner.type,
        "order_key": partner.order_key,
        "created_at": instant(partner.created_at),
    }


def _rate(partner: "Partner") -> str | None:
    return None if partner.rate is None else format_rate(partner.rate)


def _set_state(name: str, state: str) -> None:
    from storage import partners

    with session() as now:
        changed = now.store.run(lambda connection: partners.set_state(connection, name, state, actor=now.actor))
    print(f"partner {name} is {state}" + ("" if changed else " already"))


def _options(given: Mapping[str, Any]) -> "Options":
    """Of a command's options those that were given."""
    options: dict[str, Any] = {name.rstrip("_"): value for name, value in given.items() if value is not None}
    if "rate" in options:
        options["rate"] = optional_rate(options["rate"])
    verify = {name: options.pop(name) for name in list(options) if name.startswith("verify_")}
    if verify:
        options["verify_options"] = {name.removeprefix("verify_"): text for name, text in verify.items()}
    return options  # type: ignore[return-value]


def _secrets(given: Sequence[str] | None) -> list[str]:
    if given and given.count("-") > 1:
        raise wrong("only one secret can come from stdin", "--secret")
    return [read_secret(text) for text in given or ()]


def _told(partner: "Partner", made: str | None, json: bool, line: str) -> None:
    if json:
        print_json(document(partner) | ({"secret": made} if made else {}))
        return
    print(line)
    _tell_secret(made)
    if partner.verify == "none":
        say("note: --verify none: anybody who can reach the endpoint may post")


def _tell_secret(made: str | None) -> None:
    if made:
        print(f"secret {made}")
        say("note: this secret is not shown again")
