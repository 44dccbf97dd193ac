"""What an exchange means for its delivery, and what it says about the destination.

| exchange                                              | delivery      | evidence |
| ----------------------------------------------------- | ------------- | -------- |
| 200 to 299                                            | delivered     | good     |
| 410                                                   | gone          | none     |
| a status of `--park-on`                               | rejected      | as below |
| 408, 425, 429, any 1xx, 3xx, 5xx and beyond           | failed        | bad      |
| any other 4xx: it is about this event                 | failed        | none     |
| timeout, connection, DNS, TLS, no HTTP, blocked       | failed        | bad      |
| interrupted by us                                     | interrupted   | none     |
| withdrawn before the first byte                       | withdrawn     | none     |
| it killed the process that it had to itself           | crashed       | none     |
| no request can be made of it                          | undeliverable | none     |

A blocked name is retried like any failure: it may lead elsewhere tomorrow.
"""

from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import NamedTuple

from delivery.exchange import Exchange, Outcome

ABOUT_US = frozenset({408, 425, 429})
"""4xx that speak of load or timing, not of the event."""

HEEDED = frozenset({429, 503})
"""Statuses whose `Retry-After` is heeded."""


class Meaning(StrEnum):
    """What an exchange means for its delivery."""

    DELIVERED = "delivered"
    FAILED = "failed"
    REJECTED = "rejected"
    GONE = "gone"
    INTERRUPTED = "interrupted"
    WITHDRAWN = "withdrawn"
    CRASHED = "crashed"
    UNDELIVERABLE = "undeliverable"


class Evidence(StrEnum):
    """What an exchange says about the destination's health."""

    GOOD = "good"
    BAD = "bad"
    NONE = "none"


class Verdict(NamedTuple):
    """What follows from an exchange; `asked` are the `Retry-After` values that count."""

    meaning: Meaning
    evidence: Evidence
    asked: tuple[str, ...] = ()


def classify(exchange: Exchange, park_on: AbstractSet[int] = frozenset()) -> Verdict:
    """The verdict of the table above."""
    match exchange.outcome:
        case Outcome.SUCCESS:
            return Verdict(Meaning.DELIVERED, Evidence.GOOD)
        case Outcome.HTTP_ERROR | Outcome.REDIRECT:
            return _answered(exchange, park_on)
        case Outcome.INTERRUPTED:
            return Verdict(Meaning.INTERRUPTED, Evidence.NONE)
        case Outcome.WITHDRAWN:
            return Verdict(Meaning.WITHDRAWN, Evidence.NONE)
        case Outcome.CRASHED:
            return Verdict(Meaning.CRASHED, Evidence.NONE)
        case Outcome.UNDELIVERABLE:
            return Verdict(Meaning.UNDELIVERABLE, Evidence.NONE)
        case _:
            return Verdict(Meaning.FAILED, Evidence.BAD)


def _answered(exchange: Exchange, park_on: AbstractSet[int]) -> Verdict:
    status = exchange.status or 0
    if status == 410:
        return Verdict(Meaning.GONE, Evidence.NONE)
    about_event = 400 <= status < 500 and status not in ABOUT_US
    evidence = Evidence.NONE if about_event else Evidence.BAD
    if status in park_on:
        return Verdict(Meaning.REJECTED, evidence)
    return Verdict(Meaning.FAILED, evidence, exchange.retry_after if status in HEEDED else ())
