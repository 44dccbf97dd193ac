"""Slack: `X-Slack-Signature` over `v0:timestamp:body`. Its `url_verification` is signed like any event."""

from domain.sources import look_up
from domain.verification.mac import Mac, Recipe
from domain.verification.scheme import VERIFIED, Posting, Reason, Response, Verdict, is_short_token


class Slack(Mac):
    """Verifies and signs as Slack does, and sends a challenge back."""

    name = "slack"
    summary = "Slack: X-Slack-Signature; url_verification is answered"
    recipe = Recipe(
        header="X-Slack-Signature", prefix="v0=", content="v0:{timestamp}:{body}", timestamp="X-Slack-Request-Timestamp"
    )
    dedupe = "json:/event_id"
    type = "json:/event/type"
    on_backlog_full = "accept"  # 3 retries in 6 minutes, and an app that refuses most is switched off

    def answer(self, posting: Posting, verdict: Verdict) -> Response | Reason | None:
        """The challenge."""
        if verdict is not VERIFIED or b"url_verification" not in posting.body:
            return None
        challenge = look_up(posting.body, ("challenge",)) or ""
        is_question = look_up(posting.body, ("type",)) == "url_verification" and is_short_token(challenge)
        return Response(challenge.encode()) if is_question else None
