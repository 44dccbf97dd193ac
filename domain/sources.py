"""Where a value of an event is read from: a header, a place in its JSON body, or nowhere.

What is read decides deduplication, types and order keys, so whatever a sender writes there must do no harm: a body that
is no JSON, or JSON too deep or too large to look into, simply has no value.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from domain.values import shown

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # a token, RFC 9110 section 5.6.2
BAD_ESCAPE = re.compile(r"~(?![01])")  # RFC 6901 section 3
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # in no type: columns, headers and terminals show them

MAX_TYPE = 255  # characters
MAX_SOURCE = 512  # characters of a source's own text
MAX_JSON = 256 << 10  # bytes: parsing builds some 30 times as much in objects, and holds the interpreter meanwhile

NOT_JSON: dict[str, None] = {}  # NaN and the infinities, which Python's own json writes, have no value

Path = tuple[str, ...]
LookUp = Callable[[bytes, Path], str | None]


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed source. `name` is of a header, in lower case; `path` are the pointer's tokens, unescaped."""

    kind: Literal["header", "json", "none"]
    name: bytes = b""
    path: Path = ()


NOWHERE = Source("none")


def parse_source(text: str) -> Source:
    """`header:NAME`, `json:/a/json/pointer` (RFC 6901) or `none`. Raises: ValueError."""
    kind, _, rest = text.partition(":")
    if text == "none":
        return NOWHERE
    if len(text) > MAX_SOURCE:
        raise ValueError(f"{shown(text)} is too long a source: at most {MAX_SOURCE} characters")
    if kind == "header" and HEADER_NAME.fullmatch(rest):
        return Source("header", name=rest.lower().encode())
    if kind == "json" and (rest == "" or rest.startswith("/")) and not BAD_ESCAPE.search(rest) and ":" in text:
        return Source("json", path=tuple(token.replace("~1", "/").replace("~0", "~") for token in rest.split("/")[1:]))
    raise ValueError(f"{shown(text)} is no source: header:NAME, json:/a/json/pointer (RFC 6901) or none")


def look_up(body: bytes, path: Path) -> str | None:
    """The scalar at a JSON pointer, as text: a number as it is written, else None. Never raises.

    Of a repeated key the last counts. Bodies over MAX_JSON have no value.
    """
    if len(body) > MAX_JSON:
        return None
    try:
        # Numbers stay text: 64-bit ids keep every digit, and huge ones cost nothing.
        value = json.loads(body, parse_int=_Number, parse_float=_Number, parse_constant=NOT_JSON.get)
    except (ValueError, RecursionError):
        return None
    for token in path:
        value = _step(value, token)
    return _scalar(value)


def read(source: Source, headers: Iterable[tuple[bytes, bytes]], body: bytes, look_up: LookUp = look_up) -> str | None:
    """The value at a source, or None where there is none or it is empty. Header names are in lower case.

    Of a repeated header the first counts; its bytes are read as Latin-1.
    """
    if source.kind == "header":
        for name, value in headers:
            if name == source.name:
                return value.decode("latin-1").strip() or None
        return None
    return look_up(body, source.path) or None if source.kind == "json" else None


def usable_type(value: str | None) -> str | None:
    """A type that may be stored, shown and sent on: cut to MAX_TYPE; None if control characters are in it."""
    if value is None or UNPRINTABLE.search(value, 0, MAX_TYPE):
        return None
    return value[:MAX_TYPE]


def dedupe_digest(value: str) -> bytes:
    """32 bytes (SHA-256) that stand for a dedupe value of any length."""
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()


def order_key_hash(value: str) -> int:
    """1 to 2^63 - 1, the same for the same value; 0 is kept for the partner's own order."""
    digest = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1 or 1


class _Number(str):
    """A JSON number as it was written."""

    __slots__ = ()


def _step(value: Any, token: str) -> Any:
    if isinstance(value, dict):
        return value.get(token)
    if isinstance(value, list) and token.isascii() and token.isdigit() and len(token) < 10:
        index = int(token)
        # RFC 6901 section 4: an index has no leading zeros
        return value[index] if index < len(value) and str(index) == token else None
    return None


def _scalar(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str) else None
