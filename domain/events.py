"""An event: one accepted webhook, immutable, numbered per partner; and its id, which says where it stands in the log.

The id is not stored: it is the event's place (received_at, partner, sequence) written down, so it is unique by
construction, sorts by time, and finds its row without an index of its own.
"""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

Headers = list[tuple[bytes, bytes]]

PREFIX = "evt_"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BadEventId(ValueError):
    """The text is no event id."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an event stands in the log. `received_at` is in whole milliseconds."""

    partner_id: int
    sequence: int
    received_at: datetime


def event_id(partner_id: int, sequence: int, received_at: datetime) -> str:
    """`evt_` and 29 characters of base32hex: 48 bits of milliseconds, 32 of partner, 64 of sequence; sorts by time."""
    millis = (received_at - EPOCH) // timedelta(milliseconds=1)
    packed = millis.to_bytes(6, "big") + partner_id.to_bytes(4, "big") + sequence.to_bytes(8, "big")
    return PREFIX + base64.b32hexencode(packed)[:29].decode().lower()


def place_of(text: str) -> Place:
    """The place an id names. Raises: BadEventId for anything `event_id` would not have written."""
    code = text.removeprefix(PREFIX)
    if len(code) != 29 or code == text or not code.isascii() or code != code.lower():
        raise BadEventId(f"{text[:60]!r} is no event id")
    try:
        packed = base64.b32hexdecode(code.upper() + "===")
        place = Place(
            int.from_bytes(packed[6:10], "big"),
            int.from_bytes(packed[10:], "big"),
            EPOCH + timedelta(milliseconds=int.from_bytes(packed[:6], "big")),
        )
        written = event_id(place.partner_id, place.sequence, place.received_at)
    except (binascii.Error, OverflowError) as problem:
        raise BadEventId(f"{text[:60]!r} is no event id") from problem
    if written != text or not 0 < place.sequence < 1 << 63 or place.partner_id >= 1 << 31:
        raise BadEventId(f"{text[:60]!r} is no event id")
    return place


def pack_headers(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as stored: a `name:value` line each, in the order received. A value has no CR or LF (HTTP forbids it)."""
    return b"\n".join(name + b":" + value for name, value in headers)


def unpack_headers(packed: bytes) -> Headers:
    """What `pack_headers` was given."""
    if not packed:
        return []
    parted = (line.partition(b":") for line in packed.split(b"\n"))
    return [(name, value) for name, _, value in parted]
