"""What people write on a command line or in a setting, and how we write it back: durations, rates, names, times.

Every refusal is a ValueError of one line that says what was given and what is allowed.
"""

import re
from datetime import UTC, datetime, timedelta

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
NUMBER = r"([0-9]{1,12}(?:\.[0-9]{1,9})?)"
DURATION = re.compile(NUMBER + r"(ms|s|m|h|d)")
RATE = re.compile(NUMBER + r"/s")

UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
SHOWN = 60  # characters of a wrong value that an error repeats


def shown(text: str) -> str:
    """A wrong value, quoted and short enough for one line."""
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")


def is_name(text: str) -> bool:
    """Whether a partner or destination may be called so."""
    return NAME.fullmatch(text) is not None


def parse_name(text: str) -> str:
    """The name itself. Raises: ValueError."""
    if not is_name(text):
        raise ValueError(f"{shown(text)} is no name: 1 to 63 of a-z, 0-9 and -, not beginning with -")
    return text


def parse_duration(text: str) -> timedelta:
    """`100ms`, `0.1s`, `15m`, `24h`, `7d`; zero is a duration. Raises: ValueError."""
    match = DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{shown(text)} is no duration: a number and a unit, as in 100ms, 0.1s, 15m, 24h or 7d")
    try:
        return UNITS[match[2]] * float(match[1])
    except OverflowError as problem:
        raise ValueError(f"{shown(text)} is too long a duration") from problem


def format_duration(span: timedelta) -> str:
    """The shortest text from which `parse_duration` makes the same span: `90s`, `1500ms` as `1.5s`, `24h` as `1d`."""
    for unit, size in UNITS.items():
        if span and span % size == timedelta(0):
            return f"{span // size}{unit}"
    if span < UNITS["s"]:
        return _decimal(span / UNITS["ms"]) + "ms" if span else "0s"
    return _decimal(span / UNITS["s"]) + "s"


def parse_rate(text: str) -> float:
    """Events or attempts per second from `N/s`, decimals allowed, above zero. Raises: ValueError."""
    match = RATE.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise ValueError(f"{shown(text)} is no rate: a number above 0 and /s, as in 10/s or 0.5/s")
    return float(match[1])


def format_rate(per_second: float) -> str:
    """The text from which `parse_rate` makes the same rate."""
    return _decimal(per_second) + "/s"


def parse_time(text: str, now: datetime) -> datetime:
    """An aware UTC instant from ISO 8601 (UTC where it names no zone) or from an age before `now` such as `15m`.

    Raises: ValueError.
    """
    try:
        if DURATION.fullmatch(text):
            return now.astimezone(UTC) - parse_duration(text)
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as problem:
        raise ValueError(
            f"{shown(text)} is no time: ISO 8601 as in 2026-01-31T12:00:00Z, or an age as in 90s, 15m, 24h or 7d"
        ) from problem


def counted(number: int, one: str, many: str) -> str:
    """`1 delivery waits`, `2 deliveries wait`: the number with the words that go with it."""
    return f"{number} {one if number == 1 else many}"


def _decimal(number: float) -> str:
    return f"{number:.9f}".rstrip("0").rstrip(".")
