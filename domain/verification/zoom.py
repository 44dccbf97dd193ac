"""Zoom: `x-zm-signature` over `v0:timestamp:body`. Its `endpoint.url_validation` is signed like any event.

Zoom asks when an endpoint is saved and every 72 hours, and wants to see that we know the secret token too.
"""

import hmac
import json

from domain.sources import look_up
from domain.verification.mac import Mac, Recipe
from domain.verification.scheme import VERIFIED, Posting, Reason, Response, Verdict, is_short_token


class Zoom(Mac):
    """Verifies and signs as Zoom does, and proves the secret token when it is asked to."""

    name = "zoom"
    summary = "Zoom: x-zm-signature; endpoint.url_validation is answered"
    takes = "the app's secret token"
    recipe = Recipe(
        header="x-zm-signature", prefix="v0=", content="v0:{timestamp}:{body}", timestamp="x-zm-request-timestamp"
    )
    dedupe = "none"
    type = "json:/event"
    on_backlog_full = "accept"  # 3 retries in 85 minutes

    def answer(self, posting: Posting, verdict: Verdict) -> Response | Reason | None:
        """The token it gave, and its HMAC under the very secret that has signed the question."""
        if verdict is not VERIFIED or b"endpoint.url_validation" not in posting.body:
            return None
        token = look_up(posting.body, ("payload", "plainToken")) or ""
        if look_up(posting.body, ("event",)) != "endpoint.url_validation" or not is_short_token(token):
            return None
        secrets = (secret for secret in posting.secrets if self.verify(posting._replace(secrets=(secret,))) is VERIFIED)
        proof = hmac.digest(next(secrets).encode(), token.encode(), "sha256").hex()
        return Response(json.dumps({"plainToken": token, "encryptedToken": proof}).encode(), "application/json")
