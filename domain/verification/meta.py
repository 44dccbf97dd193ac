"""Meta (Facebook, Instagram, WhatsApp): `X-Hub-Signature-256`, the HMAC-SHA256 of the body under the app secret.

Before anything else Meta asks by an unsigned GET whether the endpoint knows the *verify token* that was typed in at
Meta's. `APP_SECRET:VERIFY_TOKEN` holds both, so that both rest sealed; without a colon the app secret is the token too.
"""

import hmac

from domain.verification.mac import Mac, Recipe
from domain.verification.scheme import MIN_SECRET, Posting, Reason, Response, Verdict, asked, check_text, is_short_token


class Meta(Mac):
    """Verifies and signs as Meta does, and sends a challenge back to who knows the verify token."""

    name = "meta"
    summary = "Meta, WhatsApp: X-Hub-Signature-256; hub.challenge is answered"
    takes = "the app secret, or APP_SECRET:VERIFY_TOKEN"
    recipe = Recipe(header="X-Hub-Signature-256", prefix="sha256=")
    dedupe = "none"
    type = "json:/object"

    def key(self, secret: str) -> bytes:
        """The app secret."""
        return secret.partition(":")[0].encode()

    def check_secret(self, text: str) -> None:
        """The app secret has at least 8 characters; a token after a colon is not empty. Raises: ValueError."""
        app_secret, colon, token = text.partition(":")
        check_text(app_secret, MIN_SECRET)
        if colon:
            check_text(token)

    def answer(self, posting: Posting, verdict: Verdict) -> Response | Reason | None:  # noqa: ARG002 - never signed
        """The challenge of a GET with the verify token."""
        if posting.method != "GET":
            return None
        given = asked(posting.query)
        if given.get("hub.mode") != "subscribe":
            return None
        token, challenge = given.get("hub.verify_token", ""), given.get("hub.challenge", "")
        if not token:
            return Reason.MISSING
        known = [secret.partition(":")[2] or secret for secret in posting.secrets]
        if not any(hmac.compare_digest(token.encode(), text.encode()) for text in known):
            return Reason.MISMATCH
        return Response(challenge.encode()) if is_short_token(challenge) else Reason.MALFORMED
