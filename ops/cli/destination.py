"""`hookyard destination …`: who receives from us, and by which policy."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from domain.values import counted, format_duration, format_rate, parse_duration
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

    from domain.addresses import Network
    from storage.destinations import Destination, Left, Options
    from storage.secrets import Vault

app = typer.Typer(help="Destinations: who receives from us.", no_args_is_help=True)

URL = "http:// or https://, in normal form: it is called exactly as written."


def _duration(option: str, told: str) -> Any:
    return typer.Option(option, parser=parse_duration, metavar="DURATION", help=told)


Url = Annotated[str, typer.Argument(metavar="URL", help=URL)]
Secret = Annotated[
    str | None,
    typer.Option(
        "--secret",
        metavar="SECRET",
        help="whsec_… that signs every attempt; - reads stdin, @FILE a file. Made and shown once if not given.",
    ),
]
POLICY: dict[str, Any] = {
    "timeout": Annotated[timedelta | None, _duration("--timeout", "Of a whole attempt, 100ms to 10m (default 30s).")],
    "concurrency": Annotated[
        int | None,
        typer.Option("--concurrency", metavar="N", help="Attempts in flight at once, 1 to 10000 (default 10)."),
    ],
    "rate": Annotated[
        float | None,
        typer.Option(
            "--rate", parser=rate_or_none, metavar="N/s", help="Attempts per second; none: unlimited (default)."
        ),
    ],
    "max_attempts": Annotated[
        int | None,
        typer.Option("--max-attempts", metavar="N", help="Before a delivery is parked, 1 to 10000 (default 12)."),
    ],
    "retry_base": Annotated[timedelta | None, _duration("--retry-base", "First wait, 10ms to 1d (default 5s).")],
    "retry_factor": Annotated[
        float | None,
        typer.Option("--retry-factor", metavar="X", help="Each wait is so many times the last, 1 to 100 (default 3)."),
    ],
    "retry_cap": Annotated[timedelta | None, _duration("--retry-cap", "Longest wait, 10ms to 30d (default 6h).")],
    "park_on": Annotated[
        str | None,
        typer.Option("--park-on", metavar="STATUS,...", help="Statuses that park a delivery at once; '' for none."),
    ],
    "suspend_after": Annotated[
        timedelta | None,
        _duration("--suspend-after", "Suspend when every attempt failed for so long, 1s to 365d (default 5d)."),
    ],
    "on_park": Annotated[
        str | None,
        typer.Option(
            "--on-park",
            metavar="continue|hold",
            help="hold: after a parked event its lane waits for a person (default continue).",
        ),
    ],
    "breaker_failures": Annotated[
        int | None,
        typer.Option("--breaker-failures", metavar="N", help="Failures that open the breaker, 1 to 1000 (default 5)."),
    ],
    "breaker_reset": Annotated[
        timedelta | None, _duration("--breaker-reset", "From open to the probe, 10ms to 1d (default 30s).")
    ],
    "header": Annotated[
        list[str] | None,
        typer.Option(
            "--header", metavar="'K: V'", help="Sent with every attempt; may be repeated. An edit replaces all."
        ),
    ],
}


@app.command("add", short_help="Add a destination.")
@taking(POLICY)
def add(name: Name, url: Url, secret: Secret = None, json: Json = False, **given: Any) -> None:
    """Add a destination. It receives nothing before it is subscribed to a partner."""
    from storage import destinations

    options = _options(given | {"url": url})
    own_secret = None if secret is None else read_secret(secret)
    with session() as now:
        judge_url(now.settings.networks, url)

        def work(connection: Any) -> tuple[str | None, "Destination"]:
            made = destinations.add(connection, now.vault, name, options, own_secret, actor=now.actor)
            return made, destinations.show(connection, now.vault, name)

        made, added = now.store.run(work)
    if json:
        print_json(document(added) | ({"secret": made} if made else {}))
        return
    print(f"destination {name} added")
    _tell_secret(made)


@app.command("list", short_help="List the destinations.")
def list_(json: Json = False) -> None:
    """List the destinations. Of a URL only the host is shown, and eight digits that tell it from others; show has it.

    Path and query may hold secrets.
    """
    with session() as now, now.store.begin() as connection:
        found = listed(connection, now.vault)
    if json:
        print_json(found)
        return
    rows = [(d["name"], d["state"], d["breaker"], d["in_flight"], d["url"]) for d in found]
    columns = ("NAME", "STATE", "BREAKER", "IN FLIGHT", "URL")
    print_table(columns, rows, "no destinations: hookyard destination add NAME URL", spare=("IN FLIGHT", "BREAKER"))


@app.command("show", short_help="Show a destination: URL, policy, breaker.")
def show(name: Name, json: Json = False) -> None:
    """Show a destination: its URL exactly as it is called, its policy, its breaker, who feeds it."""
    with session() as now, now.store.begin() as connection:
        told = shown(connection, now.vault, name)
    if json:
        print_json(told)
        return
    feeds = [f"{s['partner']} ({', '.join(s['types'] or ['every type'])})" for s in told["subscriptions"]]
    print_fields(told | {"subscriptions": feeds})


@app.command("edit", short_help="Change the given options, nothing else.")
@taking(POLICY)
def edit(
    name: Name,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help=URL)] = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Send no configured header any more.")] = False,
    json: Json = False,
    **given: Any,
) -> None:
    """Change the given options, nothing else; effective within 2 s, also for what is being retried."""
    from storage import destinations

    if given["header"] and no_headers:
        raise wrong("--header and --no-headers exclude each other")
    options = _options(given | {"url": url} | ({"header": []} if no_headers else {}))
    if not options:
        raise wrong("no option to change is given")
    with session() as now:
        judge_url(now.settings.networks, url)

        def work(connection: Any) -> "Destination":
            destinations.edit(connection, now.vault, name, options, actor=now.actor)
            return destinations.show(connection, now.vault, name)

        changed = now.store.run(work)
    if json:
        print_json(document(changed))
        return
    print(f"destination {name} changed")


@app.command("pause", short_help="Send nothing to it until it is resumed.")
def pause(name: Name) -> None:
    """Send nothing to it until it is resumed; what comes for it waits."""
    from storage import destinations

    with session() as now:
        changed = now.store.run(lambda connection: destinations.pause(connection, name, actor=now.actor))
    print(f"destination {name} is paused" + ("" if changed else " already"))


@app.command("resume", short_help="Send to it again, after a pause or suspension.")
def resume(name: Name) -> None:
    """Send to it again, after a pause or a suspension. What a suspension parked stays parked until it is replayed."""
    from storage import destinations

    with session() as now:
        was = now.store.run(lambda connection: destinations.resume(connection, name, actor=now.actor))
    print(f"destination {name} is active" + (" already" if was == "active" else ""))
    if was == "suspended":
        say(f"note: what was parked meanwhile: hookyard replay --destination {name} --reason destination_suspended")


@app.command("rotate-secret", short_help="Sign with a new secret from now on.")
def rotate_secret(name: Name, secret: Secret = None, overlap: Overlap = None, json: Json = False) -> None:
    """Sign with a new secret from now on, and with the old ones too until the overlap has passed."""
    from storage import destinations

    given = None if secret is None else read_secret(secret)
    span = OVERLAP if overlap is None else overlap
    with session() as now:
        made = now.store.run(
            lambda connection: destinations.rotate_secret(connection, now.vault, name, given, span, actor=now.actor)
        )
    if json:
        print_json({"name": name, "secret": made})
        return
    print(f"destination {name} has a new secret")
    _tell_secret(made)


@app.command("reset-breaker", short_help="Close the breaker at once.")
def reset_breaker(name: Name) -> None:
    """Close the breaker: deliveries go out again at once."""
    from storage import destinations

    with session() as now:
        now.store.run(lambda connection: destinations.reset_breaker(connection, name, actor=now.actor))
    print(f"the breaker of destination {name} is closed")


@app.command("remove", short_help="Send nothing more; what waits is parked.")
def remove(name: Name, yes: Yes = False) -> None:
    """Send nothing to it any more; what waits for it is parked (destination_removed), events are kept.

    What is parked then can be discarded, but not replayed: there is nowhere to send it to. Where something waits or is
    parked, it asks on a terminal and needs --yes elsewhere.
    """
    from storage import destinations

    with session() as now:
        left = now.store.run(lambda connection: destinations.left(connection, name))
        agreed = yes or agreed_to_remove(f"destination {name}", _fate(left))
        waited = destinations.remove(now.store, name, even_if_waiting=agreed, actor=now.actor)
    print(f"destination {name} removed")
    if waited:
        print(
            f"{counted(waited, 'delivery that waited is', 'deliveries that waited are')} parked (destination_removed)"
        )
    if waited or left.parked:
        say(
            f"note: what is parked for it ({waited + left.parked}) can be discarded, not replayed; "
            "hookyard backfill brings stored events to another destination"
        )


def listed(
    connection: "sa.Connection", vault: "Vault", *, after: str = "", limit: int | None = None
) -> list[dict[str, Any]]:
    """Destinations in a listing for a program: of a URL only the host, and what tells it from others there."""
    from storage import destinations

    found = destinations.listed(connection, vault, after=after, limit=limit)
    return [document(d) | {"url": destinations.told_url(vault, d.url)} for d in found]


def shown(connection: "sa.Connection", vault: "Vault", name: str) -> dict[str, Any]:
    """A destination with who feeds it, for a program. Raises: NotFound, CannotOpen."""
    from storage import destinations, subscriptions

    destination = destinations.show(connection, vault, name)
    subscribed = subscriptions.listed(connection, destination_id=destination.id)
    feeds = [{"partner": s.partner, "types": s.types, "order": s.ordering} for s in subscribed]
    return document(destination) | {"subscriptions": feeds}


def document(destination: "Destination") -> dict[str, Any]:
    """A destination for a program. Durations are texts such as `30s`, which the options take back."""
    told: dict[str, Any] = {}
    for field in destination.__slots__:
        value = getattr(destination, field)
        if field == "id":
            continue
        if field == "rate":
            told["rate"] = None if value is None else format_rate(value)
        elif field == "header_names":
            told["headers"] = list(value)
        elif isinstance(value, timedelta):
            told[field] = format_duration(value)
        else:
            told[field] = instant(value) if field == "created_at" else value
    return told


def _options(given: Mapping[str, Any]) -> "Options":
    """Of a command's options those that were given."""
    options = {name: value for name, value in given.items() if value is not None}
    if "park_on" in options:
        options["park_on"] = _statuses(options["park_on"])
    if "rate" in options:
        options["rate"] = optional_rate(options["rate"])
    if "header" in options:
        options["headers"] = list(options.pop("header"))
    return options  # type: ignore[return-value]


def _statuses(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise wrong(f"{text[:60]!r} is no list of statuses, as in 422,451", "--park-on")
    return sorted({int(part[:4]) for part in parts})


def _fate(left: "Left") -> str:
    """What becomes of what its removal would concern; empty where that is nothing."""
    told = []
    if left.waiting:
        told.append(counted(left.waiting, "delivery waits and will be parked", "deliveries wait and will be parked"))
    if left.parked:
        told.append(counted(left.parked, "delivery is parked already", "deliveries are parked already"))
    return ", ".join(told) + "; what is parked then can be discarded, not replayed" if told else ""


def judge_url(networks: "Iterable[Network]", url: str | None) -> None:
    """Refuses a literal address that no attempt could ever be made to. Names are judged when they are resolved."""
    from domain.addresses import Verdict, judge
    from domain.urls import BadURL, parse
    from storage.errors import Invalid

    try:
        address = None if url is None else parse(url).address
    except BadURL as problem:
        raise Invalid(str(problem)) from problem
    if address is not None and judge(address, networks) is Verdict.FORBIDDEN:
        raise Invalid(f"{address} is not a public address: allow its network with HOOKYARD_ALLOW_NETWORKS first")


def _tell_secret(made: str | None) -> None:
    if made:
        print(f"secret {made}")
        say("note: every attempt is signed with it; it is not shown again")
