"""What goes into an exchange with a destination and what comes out of it: values, whatever the destination does."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from domain.headers import Header

SNIPPET_BYTES = 2048  # of an answer's body that are kept for people


class Outcome(StrEnum):
    """How an exchange ended. What it means for the delivery is `classify`'s to say."""

    SUCCESS = "success"
    """The status is 200 to 299 and its headers are in, whatever became of the body."""
    HTTP_ERROR = "http_error"
    """Any other status that is no redirect."""
    REDIRECT = "redirect"
    """300 to 399: never followed."""
    TIMEOUT = "timeout"
    """No status and headers within the destination's timeout, or no connection within its share of it."""
    CONNECT_ERROR = "connect_error"
    """Refused, unreachable, or closed without an answer."""
    DNS_ERROR = "dns_error"
    TLS_ERROR = "tls_error"
    PROTOCOL_ERROR = "protocol_error"
    """What came back is no HTTP/1.x answer."""
    BLOCKED = "blocked"
    """The name leads to an address that must not be called."""
    INTERRUPTED = "interrupted"
    """We stopped waiting: written by whoever cancelled `send`; what the destination did is unknown."""
    WITHDRAWN = "withdrawn"
    """It was too late to start, or we had no thread to look its name up: nothing was written."""
    CRASHED = "crashed"
    """The process that made it alone did not survive it: written by `Alone`."""
    UNDELIVERABLE = "undeliverable"
    """No request can be made of it at all."""


class Outgoing(NamedTuple):
    """One request, complete but for its framing (`host` and `content-length`)."""

    url: str
    headers: Sequence[Header]
    body: bytes
    timeout_seconds: float  # of the whole exchange, resolution to answer
    may_start: Callable[[], bool] | None = None  # asked right before the first byte is written


class Exchange(NamedTuple):
    """What came of one request."""

    outcome: Outcome
    duration_ms: int
    status: int | None = None
    error: str | None = None  # one line, without secrets and without addresses
    retry_after: tuple[str, ...] = ()  # as received
    location: str | None = None  # without credentials, path and query
    snippet: bytes = b""  # of the answer's body, raw, at most SNIPPET_BYTES
