"""A value of a JSON body, found without building the rest of it.

msgspec skips what is not asked for (0.4 µs per KiB, against 3.6 for `json`), so neither a large nor a malicious body
costs more than its own length. What it refuses but Python's `json` takes (NaN, lone surrogates, a byte order mark) is
looked up by the domain's own function, within that one's bound.
"""

import re
from functools import lru_cache

import msgspec

from domain import sources
from domain.sources import Path

MAX_ARRAY = 256 << 10  # bytes: an array's elements are listed, and a million of them would cost a hundred times this
OPENING = re.compile(rb"[ \t\r\n]*([^ \t\r\n])")


def look_up(body: bytes, path: Path) -> str | None:
    """As `domain.sources.look_up`, for bodies of any size; of an array over MAX_ARRAY no element is found."""
    if not path:
        return sources.look_up(body, path)
    try:
        found: bytes | msgspec.Raw | None = body
        for token in path:
            if found is None:
                return None
            found = _step(bytes(found), token)
        return None if found is None else _scalar(bytes(found))
    except (msgspec.DecodeError, RecursionError):
        return sources.look_up(body, path)


def _step(raw: bytes, token: str) -> msgspec.Raw | None:
    opening = OPENING.match(raw)
    if opening is not None and opening[1] == b"[":
        return _element(raw, token)
    found: msgspec.Raw = _member(token).decode(raw).value
    return found or None


def _element(raw: bytes, token: str) -> msgspec.Raw | None:
    if len(raw) > MAX_ARRAY or not (token.isascii() and token.isdigit()) or len(token) > 9 or str(int(token)) != token:
        return None
    elements = _ELEMENTS.decode(raw)
    return elements[int(token)] if int(token) < len(elements) else None


def _scalar(raw: bytes) -> str | None:
    first = raw[:1]
    if first == b'"':
        return msgspec.json.decode(raw, type=str)
    if first in b"{[n":
        return None
    return raw.decode("ascii")  # true, false, and numbers as they are written


@lru_cache(maxsize=4096)  # tokens come from configurations, never from senders
def _member(token: str) -> "msgspec.json.Decoder[_Member]":
    kind = msgspec.defstruct("Member", [("value", msgspec.Raw, b"")], bases=(_Member,), rename={"value": token})
    return msgspec.json.Decoder(kind)


class _Member(msgspec.Struct):
    """An object of which one member is wanted; empty if it is not there."""

    value: msgspec.Raw = msgspec.Raw()


_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
