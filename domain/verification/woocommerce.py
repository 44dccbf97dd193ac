"""WooCommerce: `X-WC-Webhook-Signature`. A new webhook is tried with an unsigned form that wants to see 200."""

import re

from domain.verification.mac import Mac, Recipe
from domain.verification.scheme import Posting, Reason, Response, Verdict

PING = re.compile(rb"webhook_id=[0-9]{1,20}")


class WooCommerce(Mac):
    """Verifies and signs as WooCommerce does, and answers its ping, which says nothing."""

    name = "woocommerce"
    summary = "WooCommerce: X-WC-Webhook-Signature; the ping is answered"
    recipe = Recipe(header="X-WC-Webhook-Signature", encoding="base64")
    dedupe = "none"  # X-WC-Webhook-Delivery-ID is the same for two deliveries in one second
    type = "header:X-WC-Webhook-Topic"
    on_backlog_full = "accept"  # never retries, and is disabled after a few failures

    def answer(self, posting: Posting, verdict: Verdict) -> Response | Reason | None:  # noqa: ARG002 - never signed
        """Nothing, with 200."""
        return Response(b"") if PING.fullmatch(posting.body) else None
