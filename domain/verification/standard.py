"""Standard Webhooks 1.0.0: `webhook-id`, `webhook-timestamp`, `webhook-signature` over `id.timestamp.body`.

`whsec_` secrets are HMAC-SHA256 keys (signature version v1), `whpk_` are Ed25519 public keys (v1a); a signature counts
only under the version of its own kind of key. Ed25519 itself is handed in: it is not in the standard library.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Sequence

from domain.signatures import KEY_BYTES
from domain.verification.scheme import (
    VERIFIED,
    CheckSignature,
    Draft,
    Posting,
    Reason,
    Scheme,
    Verdict,
    check_text,
    single,
)

TOLERANCE_SECONDS = 300  # of every official library, both ways; refused only beyond it
TIMESTAMP = re.compile(rb"[0-9]{1,15}")
MAX_SIGNATURES = 32  # a sender signs with its secret and those it rotates out: Svix allows 10
MAX_SIGNATURE_HEADER = 4096  # bytes: 32 signatures of 91 characters and the spaces between them
PUBLIC_KEY_BYTES = 32


class Standard(Scheme):
    """Verifies and signs as Standard Webhooks says."""

    name = "standard"
    summary = "Standard Webhooks 1.0: whsec_ (HMAC-SHA256) or whpk_ (Ed25519)"
    takes = "whsec_… (or whpk_…, a public key)"
    prefix = "webhook"  # of its headers' names
    dedupe = "header:webhook-id"
    type = "json:/type"
    signs_identity = True

    def __init__(self, check_ed25519: CheckSignature) -> None:
        self._check_ed25519 = check_ed25519
        self._names = tuple(f"{self.prefix}-{part}" for part in ("id", "timestamp", "signature"))

    def verify(self, posting: Posting) -> Verdict:
        """Verified if a signature of the right version matches; what is cheap to refuse is refused before hashing."""
        identity, stamp, signatures = (single(posting.headers, name.encode()) for name in self._names)
        if isinstance(identity, Reason):
            return identity
        if isinstance(stamp, Reason):
            return stamp
        if isinstance(signatures, Reason):
            return signatures
        given = signatures.split(b" ", MAX_SIGNATURES)
        if len(given) > MAX_SIGNATURES or len(signatures) > MAX_SIGNATURE_HEADER:
            return Reason.MALFORMED
        wrong = untimely(stamp, posting.now)
        return wrong or self._match(identity + b"." + stamp + b"." + posting.body, given, posting.secrets)

    def sign(self, draft: Draft) -> list[tuple[str, str]]:
        """The three headers; a type stands in the body. Raises: ValueError for a public key."""
        if draft.secret.startswith("whpk_"):
            raise ValueError("a whpk_ key is public: only its partner can sign")
        stamp = str(int(draft.now))
        content = f"{draft.identity}.{stamp}.".encode() + draft.body
        signature = hmac_signature(decode_key(draft.secret), content).decode()
        return list(zip(self._names, (draft.identity, stamp, signature), strict=True))

    def check_secret(self, text: str) -> None:
        """`whsec_` and base64 of 16 to 64 bytes, or `whpk_` and of 32; base64 alone is a whsec_ secret.

        Raises: ValueError.
        """
        check_text(text)
        key = decode_key(text)
        if not key:
            raise ValueError("a Standard Webhooks secret is whsec_ (or whpk_) and the base64 of its bytes")
        if text.startswith("whpk_"):
            if len(key) != PUBLIC_KEY_BYTES:
                raise ValueError(f"a whpk_ key is the base64 of {PUBLIC_KEY_BYTES} bytes, this one has {len(key)}")
        elif len(key) not in KEY_BYTES:
            raise ValueError(
                f"a whsec_ secret is the base64 of {KEY_BYTES.start} to {KEY_BYTES.stop - 1} bytes, not {len(key)}"
            )

    def generate_secret(self, random: bytes) -> str:
        """`whsec_` and the base64 of the random bytes."""
        return "whsec_" + base64.b64encode(random).decode()

    def _match(self, content: bytes, given: Sequence[bytes], secrets: Sequence[str]) -> Verdict:
        if any(self._proves(secret, content, given) for secret in secrets):
            return VERIFIED
        return Reason.MISMATCH if secrets else Reason.UNCONFIGURED

    def _proves(self, secret: str, content: bytes, given: Sequence[bytes]) -> bool:
        key = decode_key(secret)
        if not key:
            return False
        if secret.startswith("whpk_"):
            return any(self._check_ed25519(key, decoded, content) for decoded in map(_v1a, given) if decoded)
        expected = hmac_signature(key, content)
        return any(hmac.compare_digest(expected, signature) for signature in given)


class Svix(Standard):
    """The same under Svix's own header names."""

    name = "svix"
    summary = "Svix and who sends by it: as standard, in svix- headers"
    prefix = "svix"
    dedupe = "header:svix-id"


def untimely(stamp: bytes, now: float) -> Reason | None:
    """What is wrong with a timestamp in Unix seconds; None if nothing. It is signed as it was written."""
    if not TIMESTAMP.fullmatch(stamp):
        return Reason.MALFORMED
    age = int(now) - int(stamp)
    if abs(age) <= TOLERANCE_SECONDS:
        return None
    return Reason.STALE if age > 0 else Reason.EARLY


def decode_key(secret: str) -> bytes:
    """The bytes of a key, empty where the text is none. The prefix whsec_ and base64's padding may be missing."""
    text = secret.removeprefix("whsec_").removeprefix("whpk_").rstrip("=")
    return _decode(text + "=" * (-len(text) % 4))


def hmac_signature(key: bytes, content: bytes) -> bytes:
    """`v1,` and the base64 of the HMAC-SHA256. Compared as text, so no second spelling of base64 passes."""
    return b"v1," + binascii.b2a_base64(hmac.digest(key, content, "sha256"), newline=False)


def _v1a(signature: bytes) -> bytes:
    return _decode(signature[4:]) if signature.startswith(b"v1a,") else b""


def _decode(text: str | bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""
