"""GitHub: `X-Hub-Signature-256: sha256=<hex>`, the HMAC-SHA256 of the body. The older SHA-1 header is not looked at.

GitHub never sends a delivery again by itself (people press a button, with the same delivery id), so its events are
stored even when the backlog is full.
"""

import hmac
from typing import ClassVar

from domain.partners import OnBacklogFull
from domain.verification.scheme import VERIFIED, Draft, Posting, Reason, Scheme, Verdict, check_text, single

PREFIX = b"sha256="
MIN_SECRET = 8  # characters; GitHub has no minimum, and a shorter one is guessed from one signed body
SIGNATURE_BYTES = len(PREFIX) + 64


class GitHub(Scheme):
    """Verifies and signs as GitHub does."""

    name = "github"
    summary = "GitHub: X-Hub-Signature-256"
    dedupe = "header:X-GitHub-Delivery"
    type = "header:X-GitHub-Event"
    on_backlog_full: ClassVar[OnBacklogFull] = "accept"

    def check_secret(self, text: str) -> None:
        """Any text of at least 8 characters: GitHub itself takes whatever people type. Raises: ValueError."""
        check_text(text)
        if len(text) < MIN_SECRET:
            raise ValueError(f"a secret has at least {MIN_SECRET} characters, this one has {len(text)}")

    def verify(self, posting: Posting) -> Verdict:
        """Verified if the signature is of one of the secrets."""
        given = single(posting.headers, b"x-hub-signature-256")
        if isinstance(given, Reason):
            return given
        if len(given) != SIGNATURE_BYTES or not given.startswith(PREFIX):
            return Reason.MALFORMED
        if any(hmac.compare_digest(_signature(secret, posting.body), given) for secret in posting.secrets if secret):
            return VERIFIED
        return Reason.MISMATCH if posting.secrets else Reason.UNCONFIGURED

    def sign(self, draft: Draft) -> list[tuple[str, str]]:
        """The event's type (`push` where none is given), the delivery id, and the signature."""
        return [
            ("X-GitHub-Event", draft.type or "push"),
            ("X-GitHub-Delivery", draft.identity),
            ("X-Hub-Signature-256", _signature(draft.secret, draft.body).decode()),
        ]


def _signature(secret: str, body: bytes) -> bytes:
    return PREFIX + hmac.digest(secret.encode(), body, "sha256").hex().encode()
