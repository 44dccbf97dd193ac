"""X (Twitter): `x-twitter-webhooks-signature`, and a challenge-response check by an unsigned GET, every hour.

The check asks for the HMAC of a text of the asker's choice under the key that signs events. Only short tokens are
answered, so that nobody has an event signed by asking.
"""

import json

from domain.verification.mac import Mac, Recipe
from domain.verification.scheme import Posting, Reason, Response, Verdict, asked, is_short_token


class X(Mac):
    """Verifies and signs as X does, and passes its check."""

    name = "x"
    summary = "X (Twitter): x-twitter-webhooks-signature; crc_token is answered"
    takes = "the app's consumer secret"
    recipe = Recipe(header="x-twitter-webhooks-signature", encoding="base64", prefix="sha256=")
    dedupe = "none"
    type = "none"
    on_backlog_full = "accept"

    def answer(self, posting: Posting, verdict: Verdict) -> Response | Reason | None:  # noqa: ARG002 - never signed
        """The token's signature under the newest secret."""
        token = asked(posting.query).get("crc_token") if posting.method == "GET" else None
        if token is None:
            return None
        if not posting.secrets:
            return Reason.UNCONFIGURED
        if not is_short_token(token):
            return Reason.MALFORMED
        proof = self.recipe.signature(self.key(posting.secrets[0]), token.encode()).decode()
        return Response(json.dumps({"response_token": proof}).encode(), "application/json")
