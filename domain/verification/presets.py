"""Providers that sign as a recipe says and ask no questions. Another one is a class of a few lines here.

Where a provider's requests carry several events, their ids are no dedupe value: it may send the same event again with
others beside it. `accept` is for those that do not go on trying for a day, or switch a webhook off that is refused.
"""

from domain.verification.mac import ITS_URL, Mac, Recipe


class GitHub(Mac):  # the older SHA-1 header is not looked at
    name = "github"
    summary = "GitHub: X-Hub-Signature-256"
    recipe = Recipe(header="X-Hub-Signature-256", prefix="sha256=")
    dedupe = "header:X-GitHub-Delivery"
    type = "header:X-GitHub-Event"
    example_type = "push"
    on_backlog_full = "accept"  # never sends again by itself: people press a button, with the same delivery id


class Stripe(Mac):
    name = "stripe"
    summary = "Stripe: Stripe-Signature"
    takes = "the endpoint's secret, whsec_… as Stripe shows it"
    # v0 is no proof; the official libraries do not look how far ahead the time is
    recipe = Recipe(
        header="Stripe-Signature", separators=",", prefix="v1=", timestamp="t=", content="{timestamp}.{body}",
        future_seconds=None,
    )  # fmt: skip
    dedupe = "json:/id"
    type = "json:/type"


class Shopify(Mac):
    name = "shopify"
    summary = "Shopify: X-Shopify-Hmac-SHA256"
    takes = "the app's client secret"
    recipe = Recipe(header="X-Shopify-Hmac-SHA256", encoding="base64")
    dedupe = "header:X-Shopify-Webhook-Id"
    type = "header:X-Shopify-Topic"
    on_backlog_full = "accept"  # 8 retries in 4 hours, then the subscription is deleted


class Paddle(Mac):
    name = "paddle"
    summary = "Paddle Billing: Paddle-Signature"
    recipe = Recipe(
        header="Paddle-Signature", separators=";", prefix="h1=", timestamp="ts=", content="{timestamp}:{body}",
        past_seconds=5, future_seconds=None,
    )  # fmt: skip
    dedupe = "json:/event_id"
    type = "json:/event_type"


class CircleCI(Mac):
    name = "circleci"
    summary = "CircleCI: circleci-signature"
    recipe = Recipe(header="circleci-signature", separators=",", prefix="v1=")
    dedupe = "json:/id"
    type = "json:/type"


class PagerDuty(Mac):
    name = "pagerduty"
    summary = "PagerDuty: X-PagerDuty-Signature"
    recipe = Recipe(header="X-PagerDuty-Signature", separators=", ", prefix="v1=")
    dedupe = "json:/event/id"
    type = "json:/event/event_type"


class GoCardless(Mac):
    name = "gocardless"
    summary = "GoCardless: Webhook-Signature"
    recipe = Recipe(header="Webhook-Signature")
    dedupe = "json:/meta/webhook_id"
    type = "none"


class Line(Mac):
    name = "line"
    summary = "LINE: x-line-signature"
    takes = "the channel secret"
    recipe = Recipe(header="x-line-signature", encoding="base64")
    dedupe = "none"
    type = "json:/events/0/type"
    on_backlog_full = "accept"


class Razorpay(Mac):
    name = "razorpay"
    summary = "Razorpay: X-Razorpay-Signature"
    recipe = Recipe(header="X-Razorpay-Signature")
    dedupe = "header:x-razorpay-event-id"
    type = "json:/event"


class Coinbase(Mac):
    name = "coinbase-commerce"
    summary = "Coinbase Commerce: X-CC-Webhook-Signature"
    recipe = Recipe(header="X-CC-Webhook-Signature")
    dedupe = "json:/event/id"
    type = "json:/event/type"


class Square(Mac):
    name = "square"
    summary = "Square: x-square-hmacsha256-signature, with --verify-url"
    recipe = Recipe(header="x-square-hmacsha256-signature", encoding="base64", content="{url}{body}")
    dedupe = "json:/event_id"
    type = "json:/type"
    options = ITS_URL


class HubSpot(Mac):
    name = "hubspot"
    summary = "HubSpot: X-HubSpot-Signature-v3, with --verify-url"
    takes = "the app's client secret"
    recipe = Recipe(
        header="X-HubSpot-Signature-v3", encoding="base64", content="POST{url}{body}{timestamp}",
        timestamp="X-HubSpot-Request-Timestamp", unit="ms",
    )  # fmt: skip
    dedupe = "none"
    type = "json:/0/subscriptionType"
    options = ITS_URL


class Linear(Mac):
    name = "linear"
    summary = "Linear: Linear-Signature"
    recipe = Recipe(header="Linear-Signature")
    dedupe = "header:Linear-Delivery"
    type = "header:Linear-Event"
    on_backlog_full = "accept"


class Intercom(Mac):
    name = "intercom"
    summary = "Intercom: X-Hub-Signature, SHA-1"
    takes = "the app's client secret"
    recipe = Recipe(header="X-Hub-Signature", algorithm="sha1", prefix="sha1=")
    dedupe = "json:/id"
    type = "json:/topic"
    on_backlog_full = "accept"


class Typeform(Mac):
    name = "typeform"
    summary = "Typeform: Typeform-Signature"
    recipe = Recipe(header="Typeform-Signature", encoding="base64", prefix="sha256=")
    dedupe = "json:/event_id"
    type = "json:/event_type"


class Zendesk(Mac):
    name = "zendesk"
    summary = "Zendesk: X-Zendesk-Webhook-Signature"
    recipe = Recipe(
        header="X-Zendesk-Webhook-Signature", encoding="base64", content="{timestamp}{body}",
        timestamp="X-Zendesk-Webhook-Signature-Timestamp", unit="iso", past_seconds=None, future_seconds=None,
    )  # fmt: skip
    dedupe = "header:X-Zendesk-Webhook-Invocation-Id"
    type = "json:/type"
    on_backlog_full = "accept"


class Bitbucket(Mac):
    name = "bitbucket"
    summary = "Bitbucket: X-Hub-Signature, SHA-256"
    recipe = Recipe(header="X-Hub-Signature", prefix="sha256=")
    dedupe = "header:X-Request-UUID"
    type = "header:X-Event-Key"
    on_backlog_full = "accept"


class Jira(Mac):
    name = "jira"
    summary = "Jira: X-Hub-Signature, SHA-256"
    recipe = Recipe(header="X-Hub-Signature", prefix="sha256=")
    dedupe = "header:X-Atlassian-Webhook-Identifier"
    type = "json:/webhookEvent"
    on_backlog_full = "accept"


class Sentry(Mac):
    name = "sentry"
    summary = "Sentry: Sentry-Hook-Signature"
    takes = "the integration's client secret"
    recipe = Recipe(header="Sentry-Hook-Signature")
    dedupe = "header:Request-ID"
    type = "header:Sentry-Hook-Resource"
    on_backlog_full = "accept"


class Vercel(Mac):
    name = "vercel"
    summary = "Vercel: x-vercel-signature, SHA-1"
    recipe = Recipe(header="x-vercel-signature", algorithm="sha1")
    dedupe = "json:/id"
    type = "json:/type"


PRESETS: tuple[type[Mac], ...] = (
    GitHub, Stripe, Shopify, Bitbucket, CircleCI, Coinbase, GoCardless, HubSpot, Intercom, Jira, Line, Linear,
    PagerDuty, Paddle, Razorpay, Sentry, Square, Typeform, Vercel, Zendesk,
)  # fmt: skip
