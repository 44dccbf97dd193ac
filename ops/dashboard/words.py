"""Figures as people read them. None is no data, and is never shown as zero."""

from __future__ import annotations

import re
from datetime import UTC, datetime

NOTHING = "–"
MINUTE, HOUR, DAY = 60, 3_600, 86_400  # seconds
KIB = 1024
SECONDS = re.compile(r"\b(\d+) s\b")


def duration(seconds: float | None) -> str:
    """A span in its two largest units at most: `820 ms`, `12 s`, `3 min`, `2 h 5 min`."""
    if seconds is None:
        return NOTHING
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, name, below, part in ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "min")):
        if whole >= unit:
            left = whole % unit // below
            return f"{whole // unit} {name} {left} {part}" if left else f"{whole // unit} {name}"
    return f"{whole // MINUTE} min" if whole >= MINUTE else f"{whole} s"


def number(value: float | None) -> str:
    """A count, its thousands apart."""
    return NOTHING if value is None else f"{value:,.0f}"


def rate(per_second: float | None) -> str:
    """Events per second, with a decimal while they are few."""
    if per_second is None:
        return NOTHING
    return f"{per_second:,.1f}" if per_second < 100 else f"{per_second:,.0f}"


def slope(per_minute: float | None) -> str:
    """Events per minute; a backlog that grows has a plus."""
    if per_minute is None:
        return NOTHING
    return f"{per_minute:+,.0f}".replace("-", "−") if round(per_minute) else "0"


def size(count: float | None) -> str:
    """Bytes."""
    if count is None:
        return NOTHING
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < KIB:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= KIB
    return f"{count:.1f} TiB"


def moment(at: str | datetime | None) -> str:
    """An instant in UTC to the second."""
    if at is None:
        return NOTHING
    instant = datetime.fromisoformat(at) if isinstance(at, str) else at
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def ago(at: str | datetime | None) -> str:
    """How long ago, or in how long."""
    if at is None:
        return NOTHING
    instant = datetime.fromisoformat(at) if isinstance(at, str) else at
    seconds = (datetime.now(UTC) - instant).total_seconds()
    return f"{duration(seconds)} ago" if seconds >= 0 else f"in {duration(-seconds)}"


def why(blocked_by: str) -> str:
    """What a lane waits for, its seconds as a span."""
    return SECONDS.sub(lambda found: duration(float(found[1])), blocked_by)


def words(name: str) -> str:
    """A name of ours as words: `attempts_exhausted` is attempts exhausted."""
    return name.replace("_", " ")
