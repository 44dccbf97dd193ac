"""Twitch EventSub: `Twitch-Eventsub-Message-Signature` over id, timestamp and body; its challenge is signed too."""

from domain.sources import look_up
from domain.verification.mac import Mac, Recipe
from domain.verification.scheme import VERIFIED, Posting, Reason, Response, Verdict, is_short_token, single

PREFIX = "Twitch-Eventsub-Message-"


class Twitch(Mac):
    """Verifies and signs as Twitch does, and sends a challenge back."""

    name = "twitch"
    summary = "Twitch EventSub: Twitch-Eventsub-Message-Signature; the challenge is answered"
    recipe = Recipe(
        header=PREFIX + "Signature", prefix="sha256=", content="{id}{timestamp}{body}", id=PREFIX + "Id",
        timestamp=PREFIX + "Timestamp", unit="iso", past_seconds=600, future_seconds=600,
    )  # fmt: skip
    dedupe = f"header:{PREFIX}Id"
    type = "header:Twitch-Eventsub-Subscription-Type"
    signs_identity = True
    on_backlog_full = "accept"  # a subscription that is refused often is revoked

    def answer(self, posting: Posting, verdict: Verdict) -> Response | Reason | None:
        """The challenge."""
        kind = single(posting.headers, f"{PREFIX}Type".lower().encode())
        if verdict is not VERIFIED or kind != b"webhook_callback_verification":
            return None
        challenge = look_up(posting.body, ("challenge",)) or ""
        return Response(challenge.encode()) if is_short_token(challenge) else None
