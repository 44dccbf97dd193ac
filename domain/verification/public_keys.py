"""Providers that sign with a private key of theirs and publish the other: nothing here could sign for them.

The cryptography is handed in: it is not in the standard library.
"""

import base64

from domain.sources import look_up
from domain.verification.scheme import (
    VERIFIED,
    CheckSignature,
    Draft,
    Posting,
    Reason,
    Response,
    Scheme,
    Verdict,
    check_text,
    single,
)


class PublicKey(Scheme):
    """A signature in one header, over the timestamp in another and the body. How old it is does not matter."""

    header: str
    timestamp: str

    def __init__(self, check: CheckSignature) -> None:
        self._check = check

    def decoded(self, text: bytes) -> bytes:
        """The bytes of a key or a signature. Raises: ValueError."""
        return base64.b64decode(text, validate=True)

    def verify(self, posting: Posting) -> Verdict:
        """Verified if the signature is by one of the keys."""
        given, stamp = (single(posting.headers, name.lower().encode()) for name in (self.header, self.timestamp))
        if isinstance(given, Reason):
            return given
        if isinstance(stamp, Reason):
            return stamp
        try:
            signature = self.decoded(given)
            keys = [self.decoded(secret.encode()) for secret in posting.secrets]
        except ValueError:
            return Reason.MALFORMED
        if any(self._check(key, signature, stamp + posting.body) for key in keys):
            return VERIFIED
        return Reason.MISMATCH if posting.secrets else Reason.UNCONFIGURED

    def sign(self, draft: Draft) -> list[tuple[str, str]]:  # noqa: ARG002 - nothing can be signed
        """Raises: ValueError, always."""
        raise ValueError(f"the key of --verify {self.name} is public: only the provider can sign")

    def check_secret(self, text: str) -> None:
        """Raises: ValueError where the text is no key in the provider's spelling."""
        check_text(text)
        try:
            key = self.decoded(text.encode())
        except ValueError:
            key = b""
        if not self.is_key(key):
            raise ValueError(f"a secret of --verify {self.name} is {self.takes}")

    def is_key(self, key: bytes) -> bool:
        """Whether the bytes may be a public key."""
        return bool(key)

    def generate_secret(self, random: bytes) -> str:  # noqa: ARG002 - there is nothing to generate
        """Raises: ValueError, always."""
        raise ValueError(f"--verify {self.name} needs --secret: {self.takes}")


class Discord(PublicKey):
    """Webhook events, with Ed25519. The ping with which Discord tries an endpoint is signed, and never an event."""

    name = "discord"
    summary = "Discord webhook events: X-Signature-Ed25519; the ping is answered"
    takes = "the application's public key, 64 hexadecimal digits"
    header = "X-Signature-Ed25519"
    timestamp = "X-Signature-Timestamp"
    dedupe = "none"
    type = "json:/event/type"
    on_backlog_full = "accept"  # retries for ten minutes

    def decoded(self, text: bytes) -> bytes:
        """Of hexadecimal digits."""
        return bytes.fromhex(text.decode("ascii"))

    def is_key(self, key: bytes) -> bool:
        """Whether it has the length of one."""
        return len(key) == 32

    def answer(self, posting: Posting, verdict: Verdict) -> Response | Reason | None:
        """Nothing, with 204."""
        is_ping = verdict is VERIFIED and look_up(posting.body, ("type",)) == "0"
        return Response(b"", status=204) if is_ping else None


class SendGrid(PublicKey):
    """The event webhook, with ECDSA over P-256 and SHA-256."""

    name = "sendgrid"
    summary = "SendGrid event webhook: X-Twilio-Email-Event-Webhook-Signature"
    takes = "the verification key, base64 as SendGrid shows it"
    header = "X-Twilio-Email-Event-Webhook-Signature"
    timestamp = "X-Twilio-Email-Event-Webhook-Timestamp"
    dedupe = "none"
    type = "json:/0/event"
