"""A keyed hash over the body and what stands beside it: what most providers do, each in its own spelling.

A recipe says where the proof stands and what it covers; one procedure checks them all. Signatures are compared as text,
so no second spelling of one passes, and whatever is cheap to refuse is refused before the body is hashed.
"""

import base64
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Literal

from domain.sources import parse_source
from domain.values import shown
from domain.verification.scheme import (
    VERIFIED,
    DefaultOptions,
    Draft,
    Options,
    Posting,
    Reason,
    Scheme,
    Verdict,
    single,
)

SIZES = {"sha1": 20, "sha256": 32, "sha512": 64}  # bytes
MAX_FIELDS = 32  # of a proof: who rotates secrets signs with two of them
MAX_PROOF = 4096  # bytes
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
HEADER = "header:"
DIGITS = re.compile(r"[0-9]{1,15}")
MILLISECONDS_FROM = 10**11  # as seconds this is the year 5138
ISO = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
ITS_URL: DefaultOptions = {"url": None}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How one provider signs. `content` is a template over {body}, {timestamp}, {id}, {url} and {header:NAME}."""

    header: str  # where the proof stands
    algorithm: str = "sha256"  # a key of SIZES
    encoding: str = "hex"  # or base64
    prefix: str = ""  # of a signature; what has another one is not looked at
    separators: str = ""  # signs between several signatures or fields; none: the header is one signature
    content: str = "{body}"
    timestamp: str = ""  # the header it stands in, or its field of the proof, as `t=`
    unit: Literal["s", "ms", "iso", "any"] = "s"
    past_seconds: int | None = 300  # how old a timestamp may be; None: its age does not matter
    future_seconds: int | None = 300  # how far ahead it may be
    id: str = ""  # the header it stands in
    any_case: bool = False  # a signature's hexadecimal digits may be capitals

    @cached_property
    def pieces(self) -> list[str]:
        """The template: text and placeholders by turns."""
        return PLACEHOLDER.split(self.content)

    @cached_property
    def signature_size(self) -> int:
        """Bytes of a signature, with its prefix."""
        size = SIZES[self.algorithm]
        return len(self.prefix.encode()) + (2 * size if self.encoding == "hex" else -(-size // 3) * 4)

    def signature(self, key: bytes, content: bytes) -> bytes:
        """The signature as it is sent."""
        digest = hmac.digest(key, content, self.algorithm)
        return self.prefix.encode() + (digest.hex().encode() if self.encoding == "hex" else base64.b64encode(digest))


class Mac(Scheme):
    """A scheme that is a recipe; what a provider does beyond it overrides a method."""

    recipe: Recipe
    example_type: str = "test"  # which we post where none is given and it stands in a header

    def recipe_of(self, options: Options) -> Recipe:  # noqa: ARG002 - one for all, except where people write their own
        """The recipe for a partner with these options."""
        return self.recipe

    def key(self, secret: str) -> bytes:
        """The bytes that key the hash; none where the secret is no key."""
        return secret.encode()

    def verify(self, posting: Posting) -> Verdict:
        """Verified if a signature is of one of the secrets, and its timestamp neither old nor ahead."""
        return self.judge(self.recipe_of(posting.options), posting)

    def judge(self, recipe: Recipe, posting: Posting) -> Verdict:
        """The verdict by this recipe."""
        proof = single(posting.headers, recipe.header.lower().encode())
        if isinstance(proof, Reason):
            return proof
        fields = _fields(recipe, proof)
        signatures = [signature for field in fields if (signature := _signature(recipe, field))]
        if not signatures:
            return Reason.MALFORMED
        stamp = _stamp(recipe, posting, fields)
        if isinstance(stamp, Reason):
            return stamp
        content = self.content(recipe, posting, stamp)
        if isinstance(content, Reason):
            return content
        keys = [key for secret in posting.secrets if (key := self.key(secret))]
        if any(_is_one_of(signatures, recipe.signature(key, content)) for key in keys):
            return VERIFIED
        return Reason.MISMATCH if posting.secrets else Reason.UNCONFIGURED

    def content(self, recipe: Recipe, posting: Posting, stamp: bytes) -> bytes | Reason:
        """What the signature covers."""
        parts = [recipe.pieces[0].encode()]
        for name, text in zip(recipe.pieces[1::2], recipe.pieces[2::2], strict=True):
            value = _value(name, recipe, posting, stamp)
            if isinstance(value, Reason):
                return value
            parts += [value, text.encode()]
        return b"".join([part for part in parts if part])  # a body that stands alone is not copied

    def sign(self, draft: Draft) -> list[tuple[str, str]]:
        """The proof, and what the provider says in other headers: id, type, timestamp. Raises: ValueError."""
        recipe = self.recipe_of(draft.options)
        stamp = _written(draft.now, recipe.unit)
        beside = _named(self.dedupe, draft.identity) | _named(self.type, draft.type or self.example_type)
        if recipe.id:
            beside[recipe.id] = draft.identity
        is_field = recipe.timestamp.endswith("=")
        if recipe.timestamp and not is_field:
            beside[recipe.timestamp] = stamp
        received = [(name.lower().encode(), value.encode()) for name, value in beside.items()]
        content = self.content(recipe, Posting(received, draft.body, (), draft.options, draft.now), stamp.encode())
        if isinstance(content, Reason):
            raise ValueError(f"the signature covers a header that only the partner can fill: {recipe.content}")
        signature = recipe.signature(self.key(draft.secret), content).decode()
        proof = f"{recipe.timestamp}{stamp}{recipe.separators[:1]}{signature}" if is_field else signature
        return [*beside.items(), (recipe.header, proof)]


def check_content(text: str) -> None:
    """Returns if the template can be used. Raises: ValueError."""
    named = PLACEHOLDER.findall(text)
    for name in named:
        if name not in ("body", "timestamp", "id", "url") and not (name.startswith(HEADER) and name != HEADER):
            known = "{body}, {timestamp}, {id}, {url} and {header:NAME} are known"
            raise ValueError(f"--verify-content {shown(text)}: {known}")
    if named.count("body") != 1:
        raise ValueError(f"--verify-content {shown(text)}: {{body}} is needed once, or anybody could change it")


def check_time(recipe: Recipe, stamp: bytes, now: float) -> Reason | None:
    """What is wrong with a timestamp; None if nothing. It is signed as it was written."""
    at = _seconds(stamp.decode("latin-1"), recipe.unit)
    if at is None:
        return Reason.MALFORMED
    age = int(now) - int(at)
    if recipe.past_seconds is not None and age > recipe.past_seconds:
        return Reason.STALE
    return Reason.EARLY if recipe.future_seconds is not None and -age > recipe.future_seconds else None


def _is_one_of(signatures: Sequence[bytes], expected: bytes) -> bool:
    return any(hmac.compare_digest(expected, signature) for signature in signatures)


def _fields(recipe: Recipe, proof: bytes) -> list[bytes]:
    """The parts of a proof; none where it has more than anybody sends."""
    if not recipe.separators:
        return [proof]
    fields = re.split(f"[{recipe.separators}]+".encode(), proof, maxsplit=MAX_FIELDS)
    return fields if len(fields) <= MAX_FIELDS and len(proof) <= MAX_PROOF else []


def _signature(recipe: Recipe, field: bytes) -> bytes:
    """The field if it may be a signature, else nothing."""
    prefix = recipe.prefix.encode()
    if len(field) != recipe.signature_size or not field.startswith(prefix):
        return b""
    return prefix + field[len(prefix) :].lower() if recipe.any_case else field


def _stamp(recipe: Recipe, posting: Posting, fields: Sequence[bytes]) -> bytes | Reason:
    """The timestamp as it was written, if it is neither old nor ahead; nothing where the provider has none."""
    if not recipe.timestamp:
        return b""
    if recipe.timestamp.endswith("="):
        name = recipe.timestamp.encode()
        found = [field.removeprefix(name) for field in fields if field.startswith(name)]
        stamp = found[0] if len(found) == 1 else Reason.REPEATED if found else Reason.MISSING
    else:
        stamp = single(posting.headers, recipe.timestamp.lower().encode())
    return stamp if isinstance(stamp, Reason) else check_time(recipe, stamp, posting.now) or stamp


def _value(name: str, recipe: Recipe, posting: Posting, stamp: bytes) -> bytes | Reason:
    match name:
        case "body":
            return posting.body
        case "timestamp":
            return stamp
        case "url":
            return known_url(posting)
        case _:
            header = recipe.id if name == "id" else name.removeprefix(HEADER)
            return single(posting.headers, header.lower().encode())


def known_url(posting: Posting) -> bytes:
    """The URL as the provider knows it: its own, with the query that has come."""
    base = posting.options["url"].partition("?")[0].encode()
    return base + b"?" + posting.query if posting.query else base


def _seconds(text: str, unit: str) -> float | None:
    """A timestamp in Unix seconds; None if it is none."""
    if unit != "iso" and DIGITS.fullmatch(text):
        number = int(text)
        return number / 1000 if unit == "ms" or (unit == "any" and number >= MILLISECONDS_FROM) else number
    if unit in ("iso", "any") and (match := ISO.fullmatch(text)):
        try:
            return datetime.fromisoformat(match[1] + match[2].replace("Z", "+00:00")).timestamp()
        except (ValueError, OverflowError):
            return None
    return None


def _written(now: float, unit: str) -> str:
    if unit == "iso":
        return datetime.fromtimestamp(int(now), UTC).isoformat().replace("+00:00", "Z")
    return str(int(now * 1000 if unit == "ms" else now))


def _named(source: str, value: str) -> dict[str, str]:
    """The header that a source reads, with this value; nothing where it reads no header."""
    return {source.partition(":")[2]: value} if parse_source(source).kind == "header" else {}
