"""One attempt as a value, and how it is made: the same in a worker and in a process of its own."""

from collections.abc import Callable
from typing import NamedTuple

from delivery.client import Client
from delivery.exchange import Exchange
from delivery.request import Subject, build_request
from domain.destinations import Destination
from domain.version import VERSION


class Errand(NamedTuple):
    """Everything that an attempt is made of."""

    subject: Subject
    destination: Destination
    attempt: int  # its number, from 1
    replay: str | None
    timestamp: int  # Unix seconds
    start_by: float  # boot_seconds: later than this nothing may be written


class Done(NamedTuple):
    """What came of an errand; `dropped` are names of headers that could not go with it."""

    exchange: Exchange
    dropped: tuple[bytes, ...] = ()


async def run(errand: Errand, client: Client, may_start: Callable[[], bool]) -> Done:
    """The request is built and sent. Raises: BadSecret."""
    built = build_request(
        errand.subject,
        errand.destination,
        attempt=errand.attempt,
        replay=errand.replay,
        timestamp=errand.timestamp,
        version=VERSION,
        may_start=may_start,
    )
    return Done(await client.send(built.outgoing), built.dropped)
