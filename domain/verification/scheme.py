"""What a verification scheme is. Another scheme is one file beside this one and one line in the registry.

A scheme is pure: it sees the raw bytes and the time it is told, compares in constant time, does an amount of work that
the sender cannot raise, and never raises whatever arrives.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple

from domain.partners import OnBacklogFull

Headers = Sequence[tuple[bytes, bytes]]  # as received; names in lower case
Options = Mapping[str, str]
CheckEd25519 = Callable[[bytes, bytes, bytes], bool]  # public key, signature, content; never raises

MAX_SECRET = 4096  # characters


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

    name: ClassVar[str]
    summary: ClassVar[str]  # one line for people who choose
    needs_secret: ClassVar[bool] = True
    dedupe: ClassVar[str]  # default sources
    type: ClassVar[str]
    on_backlog_full: ClassVar[OnBacklogFull] = "reject"

    @abstractmethod
    def verify(self, posting: Posting) -> Verdict:
        """Whether one of the secrets proves these bytes now. Never raises."""

    @abstractmethod
    def sign(self, draft: Draft) -> list[tuple[str, str]]:
        """The headers with which the partner would post this event. Raises: ValueError where we cannot sign so."""

    def check_secret(self, text: str) -> None:
        """Returns if the text may serve as a secret. Raises: ValueError, which never repeats the text."""
        check_text(text)

    def generate_secret(self, random: bytes) -> str:
        """A new secret from 32 random bytes. Raises: ValueError where only the provider can make one."""
        return random.hex()

    def bare_secret_headers(self, options: Options) -> frozenset[bytes]:  # noqa: ARG002 - for schemes with --verify-header
        """Lower-case names of headers that carry the secret itself: neither stored nor passed on."""
        return frozenset()


def single(headers: Headers, name: bytes) -> bytes | Reason:
    """The value of a header that must be there exactly once, and not be empty."""
    values = [value for key, value in headers if key == name]
    if len(values) > 1:
        return Reason.REPEATED
    return (values[0].strip() if values else b"") or Reason.MISSING


def check_text(text: str) -> None:
    """Returns if a secret is any text but an accident. Raises: ValueError, which never repeats the text."""
    if not text or text != text.strip():
        raise ValueError("a secret is not empty and neither begins nor ends with white space")
    if len(text) > MAX_SECRET or not text.isprintable():
        raise ValueError(f"a secret is at most {MAX_SECRET} printable characters")
