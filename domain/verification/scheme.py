"""What a verification scheme is. Another scheme is one file beside this one and one line in the registry.

A scheme is pure: it sees the raw bytes and the time it is told, compares in constant time, does an amount of work that
the sender cannot raise, and never raises whatever arrives.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import parse_qs

from domain.headers import FRAMING, TOKEN
from domain.partners import OnBacklogFull
from domain.values import shown

Headers = Sequence[tuple[bytes, bytes]]  # as received; names in lower case
Options = Mapping[str, str]  # by the part of their name that follows `--verify-`
DefaultOptions = Mapping[str, str | None]  # None: it has to be given
CheckSignature = Callable[[bytes, bytes, bytes], bool]  # public key, signature, content; never raises

NO_OPTIONS: DefaultOptions = {}

MIN_SECRET = 8  # characters of a text that keys an HMAC: a shorter one is guessed from one signed body
MAX_SECRET = 4096  # characters
URL = re.compile(r"https?://[!-~]{1,2000}")
CHALLENGE = re.compile(r"[A-Za-z0-9._~=+/-]{1,512}")
MAX_QUERY = 4096  # bytes of a question
MAX_HEADER_NAME = 64  # characters


class Reason(StrEnum):
    """Why a proof was not accepted: logged and counted, never told to the sender."""

    MISSING = "missing"  # a header of the proof is not there
    REPEATED = "repeated"  # a header of the proof is there twice: which one counts would be a guess
    MALFORMED = "malformed"
    STALE = "stale"  # the timestamp is older than the tolerance
    EARLY = "early"  # the timestamp is further ahead than the tolerance
    MISMATCH = "mismatch"
    UNCONFIGURED = "unconfigured"  # the partner has no secret that is valid now


@dataclass(frozen=True, slots=True)
class Verified:
    """The sender has proved to be the partner."""


VERIFIED = Verified()
Verdict = Verified | Reason


class Posting(NamedTuple):
    """What a scheme judges: the POST as received, what the partner was configured with, and the time."""

    headers: Headers
    body: bytes
    secrets: Sequence[str]
    options: Options
    now: float  # Unix seconds
    method: str = "POST"
    query: bytes = b""


class Response(NamedTuple):
    """What a provider is told when it asks whether somebody is there. Not an event: nothing is stored."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


class Draft(NamedTuple):
    """What a scheme signs, as the partner would."""

    body: bytes
    secret: str  # empty where the scheme needs none
    options: Options
    now: float  # Unix seconds
    identity: str
    type: str | None


class Scheme(ABC):
    """One way to prove an identity. What most schemes do alike is here: any text is a secret, there are no options."""

    name: str
    summary: str  # one line for people who choose
    takes: str = "the provider's signing secret"  # what --secret is then
    needs_secret: bool = True
    dedupe: str  # default sources
    type: str
    on_backlog_full: OnBacklogFull = "reject"  # `accept` where the provider does not go on trying for a day
    options: DefaultOptions = NO_OPTIONS
    signs_identity: bool = False  # the event's id is in the proof, beside the body
    authenticate: bytes = b""  # what a 401 names in `www-authenticate`

    @abstractmethod
    def verify(self, posting: Posting) -> Verdict:
        """Whether one of the secrets proves these bytes now. Never raises."""

    @abstractmethod
    def sign(self, draft: Draft) -> list[tuple[str, str]]:
        """The headers with which the partner would post this event. Raises: ValueError where we cannot sign so."""

    def answer(self, posting: Posting, verdict: Verdict) -> "Response | Reason | None":  # noqa: ARG002 - most never ask
        """What a provider's question is answered; a Reason if it has not proved itself; None if it is no question.

        Where the provider signs its questions they are answered only if the verdict is VERIFIED. It is asked about
        requests of every method; those that are no POST have no body and prove nothing.
        """
        return None

    def check_secret(self, text: str) -> None:
        """Returns if the text may serve as a secret. Raises: ValueError, which never repeats the text."""
        check_text(text, MIN_SECRET)

    def check_options(self, options: Options) -> None:
        """Returns if these are complete and make sense; all of them are known. Raises: ValueError."""
        missing = [name for name in self.options if name not in options]
        if missing:
            raise ValueError(f"--verify {self.name} needs --verify-{missing[0]}")
        for name in ("header", "timestamp", "id"):
            if name in options:
                check_header_name(f"--verify-{name}", options[name])
        if options.get("url") and not URL.fullmatch(options["url"]):
            raise ValueError(f"--verify-url {shown(options['url'])} is no URL: it is the one the provider was given")

    def generate_secret(self, random: bytes) -> str:
        """A new secret from 32 random bytes. Raises: ValueError where only the provider can make one."""
        return random.hex()

    def bare_secret_headers(self, options: Options) -> frozenset[bytes]:  # noqa: ARG002 - most send none
        """Lower-case names of headers that carry the secret itself: neither stored nor passed on."""
        return frozenset()


def single(headers: Headers, name: bytes) -> bytes | Reason:
    """The value of a header that must be there exactly once, and not be empty."""
    values = [value for key, value in headers if key == name]
    if len(values) > 1:
        return Reason.REPEATED
    return (values[0].strip() if values else b"") or Reason.MISSING


def check_text(text: str, at_least: int = 1) -> None:
    """Returns if a secret is any text but an accident. Raises: ValueError, which never repeats the text."""
    if not text or text != text.strip():
        raise ValueError("a secret is not empty and neither begins nor ends with white space")
    if len(text) < at_least:
        raise ValueError(f"a secret has at least {at_least} characters, this one has {len(text)}")
    if len(text) > MAX_SECRET or not text.isprintable():
        raise ValueError(f"a secret is at most {MAX_SECRET} printable characters")


def check_header_name(option: str, text: str) -> None:
    """Returns if the text names a header that a sender may choose. Raises: ValueError."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) > MAX_HEADER_NAME or not TOKEN.fullmatch(raw) or raw.lower() in FRAMING:
        raise ValueError(f"{option} {shown(text)}: a header's name is needed, of letters, digits and hyphens")


def is_short_token(text: str) -> bool:
    """Whether a provider's challenge may be sent back: no answer of ours can be made to pass for something else."""
    return CHALLENGE.fullmatch(text) is not None


def asked(query: bytes) -> Mapping[str, str]:
    """The first value of each parameter of a query; none where there are more than anybody asks with."""
    try:
        found = parse_qs(query.decode("ascii"), max_num_fields=16) if len(query) <= MAX_QUERY else {}
    except ValueError:
        found = {}
    return {name: values[0] for name, values in found.items()}
