"""What a destination's URL must look like: one spelling per place, so that what a person configured is what is sent.

Path and query go out byte for byte, so only their normal form is accepted, and a refusal says what that form is.
Whether a host may be *called* is judged on its addresses at each attempt, elsewhere: a name proves nothing. But a
literal has a single spelling here (`127.1` and `0x7f.1` are refused with `127.0.0.1`). The rules are those of the
WHATWG URL standard for http and https, narrowed.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Literal, cast
from urllib.parse import quote

from domain.addresses import Address

Scheme = Literal["http", "https"]

URL_CHARACTERS = 4096
DEFAULT_PORTS: dict[Scheme, int] = {"http": 80, "https": 443}
PATH_SAFE = "/%:@!$&'()*+,;=~-._[]|"
QUERY_SAFE = PATH_SAFE + "?\\^`{}"

_SPLIT = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#\\]*)(?P<rest>.*)", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMERIC = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*", re.ASCII)
_DEVIATING = re.compile("[\u00df\u03c2\u200c\u200d]")  # Python's IDNA 2003 maps these to another name


class BadURL(ValueError):
    """The text cannot be a destination's URL. The message is one line, without credentials."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL taken apart for the wire."""

    scheme: Scheme
    host: str  # as in the URL, without brackets
    port: int
    address: Address | None  # where the host is a literal
    authority: str  # the `Host` header
    path: str  # path and query, as sent

    @property
    def origin(self) -> tuple[str, str, int]:
        """What connections are shared by."""
        return self.scheme, self.host, self.port


@lru_cache(maxsize=8192)
def parse(url: str) -> Target:
    """The URL taken apart. Raises: BadURL, also for any spelling but the normal form, which it then names."""
    normal, target = _normalised(url)
    if url != normal:
        raise BadURL(f"the URL is not in normal form, write {normal}")
    return target


def normal_form(url: str) -> str:
    """The one spelling that is accepted for what this URL means. Raises: BadURL if it means nothing."""
    return _normalised(url)[0]


def redact(url: str) -> str:
    """Scheme, host and port, for logs and errors: credentials, path and query may hold secrets."""
    parts = _SPLIT.match(url)
    if not parts:
        return "…"
    place = f"{parts['scheme']}://{parts['authority'].rpartition('@')[2]}"
    return place + ("/…" if parts["rest"] not in ("", "/") else parts["rest"])


def _normalised(url: str) -> tuple[str, Target]:
    """The normal form, and its parts. Raises: BadURL."""
    if len(url) > URL_CHARACTERS:
        raise BadURL(f"a URL has at most {URL_CHARACTERS} characters")
    if any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in url) or url != url.strip():
        raise BadURL("a URL has no control characters and no space at its ends")
    parts = _SPLIT.fullmatch(url)
    if not parts or (lower := parts["scheme"].lower()) not in DEFAULT_PORTS:
        raise BadURL("a URL starts with http:// or https:// and a host")
    scheme = cast("Scheme", lower)
    if "@" in parts["authority"]:
        raise BadURL("a URL holds no user name or password: configure an Authorization header instead")
    if "#" in parts["rest"]:
        raise BadURL("a URL has no fragment: it is never sent")
    host, address, port = _place(parts["authority"], scheme)
    bracketed = f"[{host}]" if isinstance(address, IPv6Address) else host
    authority = bracketed if port == DEFAULT_PORTS[scheme] else f"{bracketed}:{port}"
    path = _path(parts["rest"])
    return f"{scheme}://{authority}{path}", Target(scheme, host, port, address, authority, path)


def _place(authority: str, scheme: Scheme) -> tuple[str, Address | None, int]:
    """Host, its address if it is a literal, and port. Raises: BadURL."""
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::([0-9]*))?", authority, re.ASCII)
    plain = re.fullmatch(r"([^:\[\]]+)(?::([0-9]*))?", authority, re.ASCII)
    parts = bracketed or plain
    if not parts:
        raise BadURL("the host or port of the URL is missing or malformed")
    port = int(parts[2][-6:] or 0) if parts[2] else DEFAULT_PORTS[scheme]
    if not 1 <= port <= 65535 or len((parts[2] or "").lstrip("0")) > 5:
        raise BadURL("the port of a URL is 1 to 65535")
    if bracketed:
        return *_ipv6(parts[1]), port
    return *_host(parts[1]), port


def _ipv6(text: str) -> tuple[str, Address]:
    try:
        address = IPv6Address(text)
    except ValueError as problem:
        raise BadURL("the IPv6 address of the URL is malformed") from problem
    if address.scope_id:
        raise BadURL("the IPv6 address of a URL has no zone")
    mapped = address.ipv4_mapped
    if mapped is not None:  # Python 3.13 writes these with dots, the URL standard does not
        return f"::ffff:{int(mapped) >> 16:x}:{int(mapped) & 0xFFFF:x}", address
    return address.compressed, address


def _host(text: str) -> tuple[str, Address | None]:
    """A name or an IPv4 address in its one spelling. Raises: BadURL."""
    name = text if text.isascii() else _ascii_name(text)
    name = name.lower()
    labels = name.removesuffix(".").split(".")
    if _NUMERIC.fullmatch(labels[-1]):
        address = _ipv4(labels)
        return str(address), address
    if len(name) > 253 or not all(_LABEL.fullmatch(label) and _is_readable(label) for label in labels):
        raise BadURL("the host of the URL is no valid name")
    return name, None


def _ascii_name(text: str) -> str:
    """The `xn--` form of an international name. Raises: BadURL where only the person can know it."""
    try:
        if _DEVIATING.search(text):
            raise UnicodeError
        return text.encode("idna").decode()
    except UnicodeError as problem:
        raise BadURL("write the international name of the URL's host in its ASCII form (xn--…)") from problem


def _is_readable(label: str) -> bool:
    """Whether a label in `xn--` form stands for something: it decodes, and encodes to itself again."""
    if not label.startswith("xn--"):
        return True
    try:
        decoded = label[4:].encode().decode("punycode")
        encoded = decoded.encode("punycode").decode()
    except (UnicodeError, OverflowError, ValueError):
        return False
    normal = unicodedata.normalize("NFC", decoded) == decoded == decoded.lower()
    printable = all(unicodedata.category(c) not in ("Cc", "Cs", "Co", "Cn", "Zs", "Zl", "Zp") for c in decoded)
    return normal and printable and not decoded.isascii() and encoded == label[4:]


def _ipv4(labels: list[str]) -> IPv4Address:
    """An IPv4 address as the URL standard reads it: 1 to 4 parts, decimal, octal or hexadecimal. Raises: BadURL."""
    try:
        numbers = [_number(label) for label in labels]
        *high, last = numbers
        if len(numbers) > 4 or any(n > 255 for n in high) or last >= 256 ** (5 - len(numbers)):
            raise ValueError
        return IPv4Address(last + sum(n << (8 * (3 - at)) for at, n in enumerate(high)))
    except ValueError as problem:
        raise BadURL("the IPv4 address of the URL is malformed") from problem


def _number(text: str) -> int:
    if text[:2] in ("0x", "0X"):
        return int(text[2:] or "0", 16)
    return int(text, 8) if len(text) > 1 and text.startswith("0") else int(text[:12] if text.isdigit() else "x")


def _path(rest: str) -> str:
    """Path and query with dot segments resolved and what cannot go on the wire percent-encoded."""
    path, mark, query = rest.partition("?")
    segments = _without_dots(path.replace("\\", "/").removeprefix("/").split("/"))
    encoded = "/" + "/".join(quote(segment, safe=PATH_SAFE) for segment in segments)
    return encoded + mark + quote(query, safe=QUERY_SAFE)


def _without_dots(segments: list[str]) -> list[str]:
    kept: list[str] = []
    for segment in segments:
        plain = segment.lower().replace("%2e", ".")
        if plain == "..":
            kept = kept[:-1]
        elif plain != ".":
            kept.append(segment)
    if segments[-1].lower().replace("%2e", ".") in (".", ".."):
        kept.append("")  # a directory keeps its slash
    return kept
