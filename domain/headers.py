"""Which headers a destination gets: the partner's own end-to-end ones and the configured, never framing or secrets.

Headers are pairs of bytes, in order, duplicates included. Names are compared as a destination behind CGI or WSGI reads
them: without case, and with every sign but letters and digits alike (`Webhook_Id` arrives there as our `webhook-id`).
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache

Header = tuple[bytes, bytes]

FRAMING = frozenset(
    {
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"http2-settings",
        b"keep-alive",
        b"te",
        b"trailer",
        b"trailers",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Of one connection (RFC 9110 section 7.6.1) or of one message's framing: never forwarded, never configured."""

CREDENTIALS = frozenset({b"authorization", b"cookie", b"cookie2"})
"""The partner's proof of itself to us: not the destination's business."""

OURS = (b"webhook-", b"hookyard-")
"""Prefixes of the names we set."""

CONTENT = frozenset({b"content-type", b"content-encoding"})
"""Said of the body as it was received: not to be configured."""

SIGNS = re.compile(rb"[^0-9a-z-]")
TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 section 5.6.2
PRINTABLE = re.compile(rb"[\t\x20-\x7e]*")
VALUE_BYTES = 8192  # of a configured header; most servers refuse more


class BadHeader(ValueError):
    """The text cannot be a configured header."""


@dataclass(frozen=True, slots=True)
class Passed:
    """What goes on to the destination, and the names of what could not."""

    headers: list[Header]
    unprintable: tuple[bytes, ...]
    """Dropped although end-to-end: not printable ASCII, or a name that may pass for one that is not the sender's."""


def pass_on(received: Iterable[Header], withheld: Collection[bytes] = ()) -> Passed:
    """The partner's headers that a destination gets; `withheld` names (lower case) prove the partner's identity."""
    received = list(received)
    not_to_go = _named_by_connection(received) | {as_read(name) for name in withheld}
    headers: list[Header] = []
    unprintable: list[bytes] = []
    for name, value in received:
        lower, read, goes_on, sendable = _judged(name) if len(name) <= 64 else _judge(name)
        if not goes_on or (lower == read and read in not_to_go):
            continue
        value = value.strip(b" \t")
        if sendable and read not in not_to_go and PRINTABLE.fullmatch(value):
            headers.append((lower, value))
        else:
            unprintable.append(lower)
    return Passed(headers, tuple(unprintable))


def configured(text: str) -> Header:
    """A destination's own header out of `Name: value`. Raises: BadHeader, whose message never quotes the value."""
    name, colon, value = text.partition(":")
    raw_name, raw_value = name.encode("utf-8", "surrogatepass"), value.strip(" \t").encode("utf-8", "surrogatepass")
    if not colon or not TOKEN.fullmatch(raw_name):
        raise BadHeader("a header is written `Name: value`, its name of letters, digits and hyphens")
    if not PRINTABLE.fullmatch(raw_value) or len(raw_value) > VALUE_BYTES:
        raise BadHeader(f"the value of {name} must be printable ASCII, at most {VALUE_BYTES} bytes")
    lower = raw_name.lower()
    if _is_ours_to_say(as_read(lower)) or as_read(lower) in CONTENT:
        raise BadHeader(f"{name} is set by the delivery itself and cannot be configured")
    return lower, raw_value


def header_value(text: str, limit: int = 256) -> bytes:
    """The text as a header value: what is not printable ASCII is percent-encoded as UTF-8, the rest left as it is."""
    raw = text.strip().encode("utf-8", "replace")[:limit]
    return b"".join(b"%c" % byte if 0x20 <= byte <= 0x7E else b"%%%02X" % byte for byte in raw)


def as_read(name: bytes) -> bytes:
    """The name that a destination may take this one for."""
    return SIGNS.sub(b"-", name.lower())


def _judge(name: bytes) -> tuple[bytes, bytes, bool, bool]:
    """The name in lower case, as it may be read, whether it is end-to-end, and whether it can be sent under this name.

    Only the true name of a header that stays behind is known to be that header; one that passes for it is the sender's.
    """
    lower, read = name.lower(), as_read(name)
    stays = _is_ours_to_say(read) or read in CREDENTIALS
    passes_for_another = lower != read and (stays or read in CONTENT)
    return lower, read, not (stays and lower == read), TOKEN.fullmatch(lower) is not None and not passes_for_another


_judged = lru_cache(maxsize=4096)(_judge)  # names are few and come again with every event; long ones are not kept


def _is_ours_to_say(lower: bytes) -> bool:
    """Framing, hop-by-hop, or a name the delivery sets itself."""
    return lower in FRAMING or lower == b"user-agent" or lower.startswith((*OURS, b"proxy-"))


def _named_by_connection(headers: list[Header]) -> frozenset[bytes]:
    """The names that `Connection` declares to be of this hop only (RFC 9110 section 7.6.1)."""
    values = (value for name, value in headers if name.lower() == b"connection")
    named = (as_read(part.strip()) for value in values for part in value.split(b","))
    return frozenset(named) - CONTENT  # `Connection: content-type` must not take the body's meaning away
