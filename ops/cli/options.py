"""The options that several commands share, and how what people write becomes a value."""

import inspect
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from domain.values import parse_duration, parse_rate, parse_time

AN_EVENT = "evt_… as the 202 gave it, or PARTNER/SEQUENCE such as acme/1."
RANGE = "Times are ISO 8601 (UTC unless they name a zone) or an age such as 15m, 24h or 7d; ranges are half-open."


Command = TypeVar("Command", bound=Callable[..., None])


def taking(options: Mapping[str, Any]) -> Callable[[Command], Command]:
    """The command takes these options, by the names of its parameters, and gets them all as its keyword arguments.

    They stand before its last own one; None is one that was not given.
    """

    def widen(command: Command) -> Command:
        own = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
            for name, option in options.items()
        ]
        parameters = [*own[:-1], *more, own[-1].replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return widen


def rate_or_none(text: str) -> float:
    """A rate; infinity for `none`, which lifts a limit. Raises: ValueError."""
    return float("inf") if text == "none" else parse_rate(text)


def optional_rate(given: float) -> float | None:
    """What is stored of a rate that was given."""
    return None if given == float("inf") else given


def moment(text: str) -> datetime:
    """An instant. Raises: ValueError."""
    return parse_time(text, datetime.now(UTC))


def read_secret(text: str) -> str:
    """The secret itself, `-`: from stdin, `@FILE`: from a file; one line end is no part of it. Raises: BadParameter."""
    if text != "-" and not text.startswith("@"):
        return text
    try:
        raw = sys.stdin.read() if text == "-" else Path(text[1:]).read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise wrong(f"the secret cannot be read: {problem}", "--secret") from problem
    return raw.removesuffix("\n").removesuffix("\r")


def wrong(text: str, option: str | None = None) -> typer.BadParameter:
    """Wrong usage, to be raised."""
    return typer.BadParameter(text, param_hint=option and f"'{option}'")


def agreed_to_remove(what: str, fate: str) -> bool:
    """Whether a person agrees to remove it, told what becomes of what it leaves; nobody is asked where that is nothing.

    Raises: BadParameter where nobody can be asked, Abort for a no.
    """
    if fate and not sys.stdin.isatty():
        raise wrong(f"{what}: {fate}; say --yes to remove it")
    return bool(fate) and typer.confirm(f"{what}: {fate}. Remove it?", abort=True, err=True)


Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
PartnerName = Annotated[str, typer.Argument(metavar="PARTNER", help="The partner's name.")]
DestinationName = Annotated[str, typer.Argument(metavar="DESTINATION", help="The destination's name.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="1 to 63 of a-z, 0-9 and -, not beginning with -.")]
ByPartner = Annotated[str | None, typer.Option("--partner", metavar="PARTNER", help="Only of this partner.")]
ByDestination = Annotated[
    str | None, typer.Option("--destination", metavar="DESTINATION", help="Only to this destination.")
]
Since = Annotated[
    datetime | None, typer.Option("--since", parser=moment, metavar="TIME", help="Received then or later.")
]
Until = Annotated[datetime | None, typer.Option("--until", parser=moment, metavar="TIME", help="Received before.")]
OVERLAP = timedelta(hours=24)
Overlap = Annotated[
    timedelta | None,
    typer.Option(
        "--overlap",
        parser=parse_duration,
        metavar="DURATION",
        help="For how long old secrets stay valid (default 24h).",
    ),
]
EventId = Annotated[str, typer.Argument(metavar="EVENT_ID", help=AN_EVENT)]
Pace = Annotated[
    float | None,
    typer.Option("--rate", parser=parse_rate, metavar="N/s", help="At most so many a second."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count; change nothing, ask nothing.")]
