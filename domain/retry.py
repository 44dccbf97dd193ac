"""When a failed delivery is tried again: exponential backoff, and what the destination itself asked for.

Pure: jitter and the time of the answer are arguments.
"""

import functools
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

JITTER = 0.2  # of the wait, to either side: what Svix and the Standard Webhooks text use

_SECONDS = re.compile(r"[0-9]{1,10}", re.ASCII)  # int() alone takes "+120", "1_000" and Arabic digits


def backoff(failures: int, base: timedelta, factor: float, cap: timedelta, jitter: float = 0.0) -> timedelta:
    """The wait after the nth failure, n from 1: min(cap, base × factor^(n−1)) × (1 + 0.2 jitter), jitter in [−1, 1]."""
    grown = _grown(base.total_seconds(), factor, max(failures, 1) - 1)
    wait = min(cap.total_seconds(), grown)
    return timedelta(seconds=wait * (1 + JITTER * min(max(jitter, -1.0), 1.0)))


def retry_after(values: Sequence[str], answered_at: datetime) -> timedelta | None:
    """What `Retry-After` asks for, counted from the answer's arrival; None where it says nothing sane.

    Seconds or an HTTP date (RFC 9110 section 10.2.3). Two headers that disagree, a date that has passed, signs,
    fractions and garbage say nothing. Any length is sane: the caller caps it.
    """
    if len({value.strip() for value in values}) != 1:
        return None
    value = values[0].strip()
    asked = timedelta(seconds=int(value)) if _SECONDS.fullmatch(value) else _until(value, answered_at)
    return asked if asked is not None and asked > timedelta(0) else None


def retry_in(
    failures: int, base: timedelta, factor: float, cap: timedelta, jitter: float, asked: timedelta | None = None
) -> timedelta:
    """The backoff, or as long as the destination asked for if that is more, at most the cap."""
    wait = backoff(failures, base, factor, cap, jitter)
    return wait if asked is None else max(wait, min(asked, cap))


@functools.cache
def longest(attempts: int, base: timedelta, factor: float, cap: timedelta, timeout: timedelta) -> timedelta:
    """How long that many attempts take at most, each up to its timeout and each wait as long as jitter makes it."""
    waits = (backoff(failures, base, factor, cap, jitter=1.0) for failures in range(1, attempts))
    return sum(waits, timeout * attempts)


def _grown(seconds: float, factor: float, times: int) -> float:
    """seconds × factor^times; infinity instead of an overflow."""
    try:
        return seconds * float(factor) ** times
    except OverflowError:
        return math.inf


def _until(value: str, answered_at: datetime) -> timedelta | None:
    """The span up to an HTTP date; a date without a zone (asctime) is UTC."""
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return moment - answered_at
    except OverflowError:
        return None
