"""What holds for every scheme, and what each provider alone does."""

import base64
import hashlib
import hmac
import json
import string
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from domain.sources import parse_source
from domain.verification import (
    VERIFIED,
    Draft,
    Headers,
    Posting,
    Reason,
    Response,
    Scheme,
    chosen_options,
    find_scheme,
    schemes,
)
from ingest.public_keys import check_ecdsa, check_ed25519

SCHEMES = schemes(check_ed25519, check_ecdsa)
NOW = 1_700_000_000.0
BODY = b'{ "b":1 , "a":"z"}'
URL = "https://hooks.example.com/in/shop"
GIVEN = {
    "hmac": {"header": "X-Sign", "content": "{id}.{timestamp}.{body}"},
    "square": {"url": URL}, "hubspot": {"url": URL}, "twilio": {"url": URL},
    "messagebird": {"url": URL},
}  # fmt: skip
PUBLIC = ("discord", "sendgrid")
UNSIGNING = (*PUBLIC, "adyen-payments")
PROVING = [name for name, scheme in SCHEMES.items() if scheme.needs_secret and name not in UNSIGNING]
SIGNING = [name for name in PROVING if not SCHEMES[name].bare_secret_headers({"header": "x-api-key"})]


def options(name: str) -> dict[str, str]:
    return chosen_options(SCHEMES[name], GIVEN.get(name, {}))


def secret(name: str, byte: int = 1) -> str:
    return SCHEMES[name].generate_secret(bytes([byte]) * 32)


def raw(headers: list[tuple[str, str]] | Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs]


def signed(name: str, key: str | None = None, body: bytes = BODY, at: float = NOW) -> list[tuple[bytes, bytes]]:
    draft = Draft(body, secret(name) if key is None else key, options(name), at, "msg_1", "order.created")
    return raw(SCHEMES[name].sign(draft))


def judged(name: str, headers: Headers, *secrets: str, body: bytes = BODY, now: float = NOW) -> Any:
    return SCHEMES[name].verify(Posting(headers, body, secrets or (secret(name),), options(name), now))


@pytest.mark.parametrize("name", PROVING)
def test_what_a_scheme_signs_it_verifies(name: str) -> None:
    SCHEMES[name].check_secret(secret(name))
    assert judged(name, signed(name)) is VERIFIED


@pytest.mark.parametrize("name", PROVING)
def test_another_secret_proves_nothing(name: str) -> None:
    assert judged(name, signed(name, secret(name, 2))) is Reason.MISMATCH
    assert SCHEMES[name].verify(Posting(signed(name), BODY, (), options(name), NOW)) is Reason.UNCONFIGURED
    assert SCHEMES[name].verify(Posting(signed(name), BODY, ("",), options(name), NOW)) is Reason.MISMATCH


@pytest.mark.parametrize("name", SIGNING)
def test_another_body_is_not_what_was_signed(name: str) -> None:
    for other in (BODY + b" ", BODY.replace(b" ", b""), b"", BODY[:-1], b"\xff" + BODY):
        assert judged(name, signed(name), body=other) in (Reason.MISMATCH, Reason.MALFORMED)


@pytest.mark.parametrize("name", PROVING)
def test_while_secrets_rotate_each_of_them_proves_the_sender(name: str) -> None:
    old, new = secret(name), secret(name, 2)

    assert judged(name, signed(name, old), new, old) is VERIFIED
    assert judged(name, signed(name, new), new, old) is VERIFIED
    assert judged(name, signed(name, old), new) is Reason.MISMATCH


@pytest.mark.parametrize("name", PROVING)
def test_the_header_with_the_proof_is_there_once(name: str) -> None:
    headers = signed(name)
    proof = headers[-3] if name == "box" else headers[-1]

    assert judged(name, [header for header in headers if header != proof]) is Reason.MISSING
    assert judged(name, [header if header != proof else (proof[0], b"") for header in headers]) is Reason.MISSING
    assert judged(name, [*headers, (proof[0], b"other")]) is Reason.REPEATED
    assert judged(name, [(key, b"\xe9" if key == proof[0] else value) for key, value in headers]) is not VERIFIED


PAST_AND_FUTURE = {
    "standard": (300, 300), "svix": (300, 300), "hmac": (300, 300), "stripe": (300, None), "slack": (300, 300),
    "zoom": (300, 300), "paddle": (5, None), "box": (600, 0), "twitch": (600, 600), "hubspot": (300, 300),
    "zendesk": (None, None), "hook0": (300, 300), "messagebird": (61, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", SIGNING)
def test_a_timestamp_is_as_old_as_the_provider_says_and_no_older(name: str) -> None:
    past, future = PAST_AND_FUTURE.get(name, (None, None))
    year = 365 * 86_400

    assert judged(name, signed(name, at=NOW - (year if past is None else past))) is VERIFIED
    assert judged(name, signed(name, at=NOW + (year if future is None else future))) is VERIFIED
    if past is not None:
        assert judged(name, signed(name, at=NOW - past - 1)) is Reason.STALE
    if future is not None:
        assert judged(name, signed(name, at=NOW + future + 1)) is Reason.EARLY


@pytest.mark.parametrize("name", [name for name in SIGNING if any(b"timestamp" in key for key, _ in signed(name))])
@pytest.mark.parametrize("stamp", [b"soon", b"9" * 40, b"-1", b"1e9", b" ", "١٧".encode(), b"2026-13-01T00:00:00Z"])
def test_a_timestamp_that_is_none_is_refused(name: str, stamp: bytes) -> None:
    headers = [(key, stamp if b"timestamp" in key else value) for key, value in signed(name)]

    assert judged(name, headers) in (Reason.MALFORMED, Reason.MISSING)


def mac(key: str, content: bytes, algorithm: str = "sha256") -> bytes:
    return hmac.new(key.encode(), content, algorithm).digest()


def b64(raw_bytes: bytes) -> str:
    return base64.b64encode(raw_bytes).decode()


KEY = "0123456789abcdef"
STAMP, MILLIS, ISO = "1700000000", "1700000000000", "2023-11-14T22:13:20Z"
AS_DOCUMENTED: dict[str, Callable[[], Mapping[str, str]]] = {
    "github": lambda: {"X-Hub-Signature-256": "sha256=" + mac(KEY, BODY).hex()},
    "meta": lambda: {"X-Hub-Signature-256": "sha256=" + mac(KEY, BODY).hex()},
    "bitbucket": lambda: {"X-Hub-Signature": "sha256=" + mac(KEY, BODY).hex()},
    "jira": lambda: {"X-Hub-Signature": "sha256=" + mac(KEY, BODY).hex()},
    "intercom": lambda: {"X-Hub-Signature": "sha1=" + mac(KEY, BODY, "sha1").hex()},
    "shopify": lambda: {"X-Shopify-Hmac-SHA256": b64(mac(KEY, BODY))},
    "woocommerce": lambda: {"X-WC-Webhook-Signature": b64(mac(KEY, BODY))},
    "stripe": lambda: {"Stripe-Signature": f"t={STAMP},v1={mac(KEY, f'{STAMP}.'.encode() + BODY).hex()}"},
    "paddle": lambda: {"Paddle-Signature": f"ts={STAMP};h1={mac(KEY, f'{STAMP}:'.encode() + BODY).hex()}"},
    "slack": lambda: {
        "X-Slack-Request-Timestamp": STAMP,
        "X-Slack-Signature": "v0=" + mac(KEY, f"v0:{STAMP}:".encode() + BODY).hex(),
    },
    "zoom": lambda: {
        "x-zm-request-timestamp": STAMP,
        "x-zm-signature": "v0=" + mac(KEY, f"v0:{STAMP}:".encode() + BODY).hex(),
    },
    "zendesk": lambda: {
        "X-Zendesk-Webhook-Signature-Timestamp": ISO,
        "X-Zendesk-Webhook-Signature": b64(mac(KEY, ISO.encode() + BODY)),
    },
    "twitch": lambda: {
        "Twitch-Eventsub-Message-Id": "m1",
        "Twitch-Eventsub-Message-Timestamp": ISO,
        "Twitch-Eventsub-Message-Signature": "sha256=" + mac(KEY, f"m1{ISO}".encode() + BODY).hex(),
    },
    "hubspot": lambda: {
        "X-HubSpot-Request-Timestamp": MILLIS,
        "X-HubSpot-Signature-v3": b64(mac(KEY, f"POST{URL}".encode() + BODY + MILLIS.encode())),
    },
    "square": lambda: {"x-square-hmacsha256-signature": b64(mac(KEY, URL.encode() + BODY))},
    "adyen": lambda: {"hmacsignature": b64(hmac.digest(bytes.fromhex(KEY), BODY, "sha256"))},
    "circleci": lambda: {"circleci-signature": "v1=" + mac(KEY, BODY).hex()},
    "pagerduty": lambda: {"X-PagerDuty-Signature": f"v1={mac(KEY, BODY).hex()}"},
    "gocardless": lambda: {"Webhook-Signature": mac(KEY, BODY).hex()},
    "razorpay": lambda: {"X-Razorpay-Signature": mac(KEY, BODY).hex()},
    "coinbase-commerce": lambda: {"X-CC-Webhook-Signature": mac(KEY, BODY).hex()},
    "linear": lambda: {"Linear-Signature": mac(KEY, BODY).hex()},
    "sentry": lambda: {"Sentry-Hook-Signature": mac(KEY, BODY).hex()},
    "vercel": lambda: {"x-vercel-signature": mac(KEY, BODY, "sha1").hex()},
    "line": lambda: {"x-line-signature": b64(mac(KEY, BODY))},
    "x": lambda: {"x-twitter-webhooks-signature": "sha256=" + b64(mac(KEY, BODY))},
    "typeform": lambda: {"Typeform-Signature": "sha256=" + b64(mac(KEY, BODY))},
    "gitlab": lambda: {"X-Gitlab-Token": KEY},
    "telegram": lambda: {"X-Telegram-Bot-Api-Secret-Token": KEY},
    "bearer": lambda: {"Authorization": f"bearer {KEY}"},
    "api-key": lambda: {"X-API-Key": KEY},
    "basic": lambda: {"Authorization": f"BASIC {b64(KEY.encode())}"},
}


@pytest.mark.parametrize("name", AS_DOCUMENTED)
def test_a_request_made_by_the_providers_description_is_verified(name: str) -> None:
    headers = raw(AS_DOCUMENTED[name]())
    (proof, value) = headers[-1]

    assert judged(name, headers, KEY) is VERIFIED
    wrong = "000000000000000f" if name == "adyen" else "wrong" + KEY
    assert judged(name, headers, wrong) is Reason.MISMATCH
    for altered in (value[1:], value[:-1], value + b"0", b"x" + value, value.swapcase(), value.partition(b"=")[2]):
        if not (name in ("basic", "bearer") and altered == value.swapcase()):
            assert judged(name, [*headers[:-1], (proof, altered)], KEY) is not VERIFIED, altered


ADYEN = "74F490DD33F7327BAECC88B2947C011FC02D014A473AAA33A8EC93E4DC069174"


def payment(reference: str, signed: bool = True, **changes: Any) -> dict[str, Any]:
    """An item of an Adyen notification; `changes` come after it was signed."""
    content = f"{reference}::Shop:order-1:1000:EUR:AUTHORISATION:true"
    signature = b64(hmac.digest(bytes.fromhex(ADYEN), content.encode(), "sha256"))
    item: dict[str, Any] = {
        "pspReference": reference, "merchantAccountCode": "Shop", "merchantReference": "order-1",
        "amount": {"value": 1000, "currency": "EUR"}, "eventCode": "AUTHORISATION", "success": "true",
    }  # fmt: skip
    return item | ({"additionalData": {"hmacSignature": signature}} if signed else {}) | changes


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([payment("a"), payment("b")], VERIFIED),
        ([payment("a"), payment("b", success="false")], Reason.MISMATCH),
        ([payment("a"), payment("b", amount={"value": 9000, "currency": "EUR"})], Reason.MISMATCH),
        ([payment("a"), payment("b", signed=False)], Reason.MISSING),
        ([payment("a"), "no item"], Reason.MALFORMED),
        ([payment("a")] * 101, Reason.MALFORMED),
        ([], Reason.MALFORMED),
    ],
)
def test_every_item_of_an_adyen_notification_is_proved(items: list[Any], expected: Any) -> None:
    document = {"live": "false", "notificationItems": [{"NotificationRequestItem": item} for item in items]}
    body = json.dumps(document).encode()

    assert judged("adyen-payments", [], ADYEN, body=body) is expected
    assert judged("adyen-payments", [], ADYEN, body=body.replace(b'"amount"', b'"amount":0,"amount"')) is not VERIFIED
    with pytest.raises(ValueError, match="inside the body"):
        find_scheme("adyen-payments").sign(Draft(b"{}", ADYEN, {}, NOW, "m1", None))


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"[" * 100_000, b'{"notificationItems":{}}', b"{}", b"1e999"])
def test_what_is_no_adyen_notification_is_refused(body: bytes) -> None:
    assert judged("adyen-payments", [], ADYEN, body=body) in (Reason.MALFORMED, Reason.MISSING)


@pytest.mark.parametrize(
    "token",
    [
        b".", b"..", b"a.b", b"e30.e30.x", b"W10.W10.x", b"eyJhbGciOltdfQ.e30.x", b"\xff.\xff.\xff", b"e30." * 2000,
        b"eyJhbGciOiJub25lIn0.eyJleHAiOjk5OTk5OTk5OTl9.", b"eyJhbGciOiJIUzI1NiJ9.eyJleHAiOiJ4In0.x",
    ],
)  # fmt: skip
def test_a_token_of_another_make_is_malformed(token: bytes) -> None:
    assert judged("messagebird", [(b"messagebird-signature-jwt", token)]) is Reason.MALFORMED


def test_a_token_is_of_one_url_and_one_body() -> None:
    headers, key = signed("messagebird"), secret("messagebird")
    scheme = find_scheme("messagebird")

    def verdict(url: str = URL, body: bytes = BODY, query: bytes = b"") -> Any:
        return scheme.verify(Posting(headers, body, (key,), {"url": url}, NOW, query=query))

    assert verdict() is VERIFIED
    assert verdict(url=f"{URL}/other") is Reason.MISMATCH
    assert verdict(query=b"a=1") is Reason.MISMATCH
    assert verdict(body=b"") is Reason.MISMATCH


@pytest.mark.parametrize(
    "fields", ["h=,", "h=a  b,", "h=a,h=b,", "", "h=" + " ".join(["x"] * 17) + ",", "h={body},", "h=a:b,"]
)
def test_a_hook0_signature_names_its_headers_plainly_and_once(fields: str) -> None:
    headers = raw({"X-Hook0-Signature": f"t={STAMP},{fields}v1={'0' * 64}", "a": "1", "b": "2", "x": "3"})

    assert judged("hook0", headers, KEY) is Reason.MALFORMED


def test_of_several_secrets_and_several_signatures_one_pair_is_enough() -> None:
    two = f"v1={'0' * 64},v1={mac(KEY, BODY).hex()}"
    assert judged("pagerduty", raw({"X-PagerDuty-Signature": two}), KEY) is VERIFIED
    content = f"{STAMP}.".encode() + BODY
    many = f"t={STAMP},v1={'0' * 64},v1={mac(KEY, content).hex()},v1={'1' * 64}"

    assert judged("stripe", raw({"Stripe-Signature": many}), "another one", KEY) is VERIFIED


def test_a_stripe_signature_has_one_time_and_fields_in_any_order() -> None:
    signature = "v1=" + mac(KEY, f"{STAMP}.".encode() + BODY).hex()

    def given_as(text: str) -> Any:
        return judged("stripe", raw({"Stripe-Signature": text}), KEY)

    assert given_as(f"{signature},t={STAMP}") is VERIFIED
    assert given_as(f"t={STAMP},t={STAMP},{signature}") is Reason.REPEATED
    assert given_as(signature) is Reason.MISSING
    assert given_as(f"t={STAMP}") is Reason.MALFORMED
    assert given_as(f"t={STAMP},{signature.replace('v1', 'v0')}") is Reason.MALFORMED
    assert given_as(f"t={STAMP}," + "v1=00," * 40 + signature) is Reason.MALFORMED


@pytest.mark.parametrize("vector_secret", ["whsec_c2VjcmV0IG9mIHRoZSBlbmRwb2ludA=="])
def test_a_stripe_secret_is_the_text_with_its_prefix(vector_secret: str) -> None:
    signature = mac(vector_secret, f"{STAMP}.".encode() + BODY).hex()

    assert judged("stripe", raw({"Stripe-Signature": f"t={STAMP},v1={signature}"}), vector_secret) is VERIFIED


HMACS: list[tuple[dict[str, str], Callable[[], Mapping[str, str]]]] = [
    ({}, lambda: {"X-Sign": mac(KEY, BODY).hex().upper()}),
    ({"algorithm": "sha512", "encoding": "base64"}, lambda: {"X-Sign": b64(mac(KEY, BODY, "sha512"))}),
    ({"algorithm": "sha1", "prefix": "sha1="}, lambda: {"X-Sign": "sha1=" + mac(KEY, BODY, "sha1").hex()}),
    ({"prefix": "HMAC "}, lambda: {"X-Sign": "HMAC " + mac(KEY, BODY).hex()}),
    ({"prefix": "v1="}, lambda: {"X-Sign": f"v0=x; v1={'0' * 64}, v1={mac(KEY, BODY).hex()}"}),
    (
        {"content": "{timestamp}.{body}"},
        lambda: {"webhook-timestamp": STAMP, "X-Sign": mac(KEY, STAMP.encode() + b"." + BODY).hex()},
    ),
    (
        {"content": "{timestamp}.{body}", "timestamp": "t=", "prefix": "v1="},
        lambda: {"X-Sign": f"t={MILLIS},v1={mac(KEY, MILLIS.encode() + b'.' + BODY).hex()}"},
    ),
    (
        {"content": "{id}:{header:X-Topic}:{body}{timestamp}", "id": "X-Id", "timestamp": "X-At"},
        lambda: {"X-Id": "7", "X-Topic": "a", "X-At": ISO, "X-Sign": mac(KEY, b"7:a:" + BODY + ISO.encode()).hex()},
    ),
    (
        {"content": "{url}|{body}", "url": URL},
        lambda: {"X-Sign": mac(KEY, URL.encode() + b"|" + BODY).hex()},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("said", "headers"), HMACS, ids=[str(said) for said, _ in HMACS])
def test_hmac_is_what_its_options_say(said: dict[str, str], headers: Callable[[], Mapping[str, str]]) -> None:
    scheme = find_scheme("hmac")
    chosen = chosen_options(scheme, {"header": "X-Sign"} | said)
    received = raw(headers())

    def verdict(body: bytes = BODY, key: str = KEY, now: float = NOW) -> Any:
        return scheme.verify(Posting(received, body, (key,), chosen, now))

    assert verdict() is VERIFIED
    assert verdict(body=BODY + b" ") is Reason.MISMATCH
    assert verdict(key="wrong key") is Reason.MISMATCH
    if "{timestamp}" in chosen["content"]:
        assert verdict(now=NOW + 301) is Reason.STALE
        assert verdict(now=NOW - 301) is Reason.EARLY
    for missing in range(len(received)):
        left = received[:missing] + received[missing + 1 :]
        assert scheme.verify(Posting(left, BODY, (KEY,), chosen, NOW)) is Reason.MISSING


def test_what_a_body_holds_is_no_placeholder() -> None:
    chosen = chosen_options(find_scheme("hmac"), {"header": "X-Sign", "content": "{timestamp}.{body}"})
    headers = raw({"webhook-timestamp": STAMP, "X-Sign": mac(KEY, STAMP.encode() + b".{timestamp}{body}").hex()})

    assert find_scheme("hmac").verify(Posting(headers, b"{timestamp}{body}", (KEY,), chosen, NOW)) is VERIFIED


@pytest.mark.parametrize(
    ("name", "said", "told"),
    [
        ("hmac", {}, "--verify hmac needs --verify-header"),
        ("hmac", {"header": "X Y"}, "--verify-header 'X Y': a header's name is needed"),
        ("hmac", {"header": "Content-Length"}, "--verify-header 'Content-Length'"),
        ("hmac", {"header": "x", "algorithm": "md5"}, "--verify-algorithm 'md5': sha1, sha256, sha512 are allowed"),
        ("hmac", {"header": "x", "encoding": "hexa"}, "--verify-encoding 'hexa': hex, base64 are allowed"),
        ("hmac", {"header": "x", "prefix": "\n"}, "--verify-prefix is at most 200 characters of printable ASCII"),
        ("hmac", {"header": "x", "content": "{timestamp}"}, "{body} is needed once"),
        ("hmac", {"header": "x", "content": "{body}{body}"}, "{body} is needed once"),
        ("hmac", {"header": "x", "content": "{body}{nonce}"}, "{body}, {timestamp}, {id}, {url} and {header:NAME}"),
        ("hmac", {"header": "x", "content": "{body}{header:}"}, "are known"),
        ("hmac", {"header": "x", "content": "{body}{header:a b}"}, "a header's name is needed"),
        ("hmac", {"header": "x", "content": "{url}{body}"}, "needs --verify-url"),
        ("hmac", {"header": "x", "timestamp": "="}, "--verify-timestamp ''"),
        ("square", {}, "--verify square needs --verify-url"),
        ("square", {"url": "hooks.example.com"}, "'hooks.example.com' is no URL"),
        ("github", {"header": "x"}, "--verify-header does not belong to --verify github, but to hmac, api-key"),
        (
            "none",
            {"url": URL},
            "--verify-url does not belong to --verify none, but to hmac, hubspot, messagebird,",
        ),
        ("api-key", {"header": ""}, "--verify-header ''"),
    ],
)
def test_options_that_make_no_sense_are_refused(name: str, said: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        chosen_options(find_scheme(name), said)
    assert told in str(refused.value)


def test_options_that_were_not_given_are_at_their_defaults() -> None:
    assert chosen_options(find_scheme("api-key"), {}) == {"header": "x-api-key"}
    assert chosen_options(find_scheme("github"), {}) == {}
    assert chosen_options(find_scheme("hmac"), {"header": "x"})["content"] == "{body}"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("basic", "user", "user:password"),
        ("basic", ":hunter2 hunter2", "user:password"),
        ("basic", "user:", "user:password"),
        ("bearer", "", "not empty"),
        ("bearer", " token", "white space"),
        ("hmac", "short", "at least 8 characters, this one has 5"),
        ("stripe", "short", "at least 8 characters"),
        ("adyen", "no hexadecimal", "hexadecimal digits"),
        ("meta", "short:token", "at least 8 characters"),
        ("meta", "0123456789:", "not empty"),
        ("discord", "00" * 31, "64 hexadecimal digits"),
        ("discord", "zz" * 32, "64 hexadecimal digits"),
        ("sendgrid", "no base64!", "verification key"),
    ],
)
def test_a_secret_of_another_form_is_refused_without_being_repeated(name: str, text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        SCHEMES[name].check_secret(text)
    assert len(text) < 8 or text not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("basic", b"Basic " + base64.b64encode(b"ann:a:b"), VERIFIED),
        ("basic", b"basic " + base64.b64encode(b"ann:a:b"), VERIFIED),
        ("basic", b"Basic " + base64.b64encode(b"ann:a"), Reason.MISMATCH),
        ("basic", b"Basic", Reason.MALFORMED),
        ("basic", b"Bearer ann:a:b", Reason.MALFORMED),
        ("bearer", b"Bearer ann:a:b", VERIFIED),
        ("bearer", b"Bearer ann:a:", Reason.MISMATCH),
        ("bearer", b"Bearer ann:a:bb", Reason.MISMATCH),
        ("bearer", b"Bearer", Reason.MALFORMED),
        ("bearer", b"ann:a:b", Reason.MALFORMED),
        ("bearer", b"Bearer \xe9", Reason.MISMATCH),
    ],
)
def test_authorization_is_the_secret_exactly(name: str, value: bytes, expected: Any) -> None:
    assert judged(name, [(b"authorization", value)], "ann:a:b") is expected


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("basic", b"authorization"), ("bearer", b"authorization"), ("api-key", b"x-api-key"),
        ("gitlab", b"x-gitlab-token"), ("telegram", b"x-telegram-bot-api-secret-token"),
    ],
)  # fmt: skip
def test_a_header_that_is_the_secret_itself_is_withheld(name: str, header: bytes) -> None:
    assert SCHEMES[name].bare_secret_headers(options(name)) == {header}


def test_all_other_schemes_withhold_nothing() -> None:
    for name in [*SIGNING, *UNSIGNING, "none"]:
        assert SCHEMES[name].bare_secret_headers(options(name)) == frozenset()


def test_an_api_key_stands_where_the_option_says() -> None:
    chosen = chosen_options(find_scheme("api-key"), {"header": "X-Token"})
    posting = Posting([(b"x-token", b"k1")], BODY, ("k2", "k1"), chosen, NOW)

    assert find_scheme("api-key").verify(posting) is VERIFIED
    assert find_scheme("api-key").bare_secret_headers(chosen) == {b"x-token"}


def discord(body: bytes, stamp: bytes = b"1700000000") -> tuple[Headers, str]:
    key = Ed25519PrivateKey.from_private_bytes(b"d" * 32)
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    signature = key.sign(stamp + body).hex().encode()
    return [(b"x-signature-ed25519", signature), (b"x-signature-timestamp", stamp)], public.hex()


def test_discord_signs_with_ed25519_over_the_timestamp_and_the_body() -> None:
    headers, public = discord(BODY)
    find_scheme("discord").check_secret(public)

    assert judged("discord", headers, public) is VERIFIED
    assert judged("discord", headers, public, body=BODY + b" ") is Reason.MISMATCH
    assert judged("discord", headers, "00" * 32) is Reason.MISMATCH
    assert judged("discord", headers, "00" * 32, public) is VERIFIED
    assert judged("discord", headers[:1], public) is Reason.MISSING
    assert judged("discord", [(b"x-signature-ed25519", b"\xe9"), headers[1]], public) is Reason.MALFORMED
    without = find_scheme("discord").verify(Posting(headers, BODY, (public,), {}, NOW))
    assert without is Reason.MISMATCH


@pytest.mark.parametrize("name", PUBLIC)
def test_under_a_public_key_nothing_is_signed_or_generated(name: str) -> None:
    with pytest.raises(ValueError, match="only the provider can sign"):
        find_scheme(name).sign(Draft(BODY, "", {}, NOW, "m1", None))
    with pytest.raises(ValueError, match=f"--verify {name} needs --secret"):
        find_scheme(name).generate_secret(bytes(32))


def test_a_twilio_form_is_signed_by_its_sorted_parameters() -> None:
    body = b"To=%2B1&From=%2B2&Tag=b&Tag=a&Tag=b&Empty="
    content = URL + "Empty" + "From+2" + "Taga" + "Tagb" + "To+1"
    headers = raw({"X-Twilio-Signature": b64(mac(KEY, content.encode(), "sha1"))})

    assert judged("twilio", headers, KEY, body=body) is VERIFIED
    assert judged("twilio", headers, KEY, body=body + b"&a=") is Reason.MISMATCH
    assert judged("twilio", headers, KEY, body=b"&".join([b"a=b"] * 2000)) is Reason.MALFORMED
    assert judged("twilio", headers, KEY, body=b"\xff") is Reason.MALFORMED


def test_a_twilio_body_that_is_no_form_has_its_digest_in_the_query() -> None:
    query = b"bodySHA256=" + hashlib.sha256(BODY).hexdigest().encode()
    headers = raw({"X-Twilio-Signature": b64(mac(KEY, URL.encode() + b"?" + query, "sha1"))})
    posting = Posting(headers, BODY, (KEY,), {"url": URL}, NOW, query=query)

    assert SCHEMES["twilio"].verify(posting) is VERIFIED
    assert SCHEMES["twilio"].verify(posting._replace(body=BODY + b" ")) is Reason.MISMATCH
    assert SCHEMES["twilio"].verify(posting._replace(query=b"")) is Reason.MISMATCH


def asked(name: str, headers: Headers, body: bytes, *secrets: str, now: float = NOW) -> Any:
    """What is answered to a POST, or why not; None where it would be stored."""
    posting = Posting(headers, body, secrets or (secret(name),), options(name), now)
    verdict = SCHEMES[name].verify(posting)
    told = SCHEMES[name].answer(posting, verdict)
    return told or (verdict if isinstance(verdict, Reason) else None)


def test_slack_gets_its_challenge_back_if_it_has_signed_the_question() -> None:
    question = b'{"token":"x","challenge":"3eZbrw1aB","type":"url_verification"}'
    event = b'{"type":"event_callback","challenge":"no","event":{"text":"url_verification"}}'

    assert asked("slack", signed("slack", body=question), question) == Response(b"3eZbrw1aB")
    assert asked("slack", signed("slack", "another one", body=question), question) is Reason.MISMATCH
    assert asked("slack", signed("slack", body=question, at=NOW - 301), question) is Reason.STALE
    assert asked("slack", [], question) is Reason.MISSING
    assert asked("slack", signed("slack", body=event), event) is None


def test_no_page_can_be_made_of_a_challenge() -> None:
    question = b'{"challenge":"<script>alert(1)</script>","type":"url_verification"}'

    assert asked("slack", signed("slack", body=question), question) is None


def test_zoom_gets_a_proof_under_the_secret_that_has_signed_the_question() -> None:
    question = b'{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS"}}'
    old, new = secret("zoom", 1), secret("zoom", 2)
    proof = hmac.new(old.encode(), b"qgg8vlvZRS", "sha256").hexdigest()

    told = asked("zoom", signed("zoom", old, body=question), question, new, old)

    assert json.loads(told.body) == {"plainToken": "qgg8vlvZRS", "encryptedToken": proof}
    assert told.content_type == "application/json"
    assert asked("zoom", signed("zoom", "another one", body=question), question) is Reason.MISMATCH


def test_twitch_gets_its_challenge_back_if_it_has_signed_the_question() -> None:
    question = b'{"challenge":"pogchamp-kappa-360noscope","subscription":{}}'
    kind = (b"twitch-eventsub-message-type", b"webhook_callback_verification")
    headers = signed("twitch", body=question)

    assert asked("twitch", [*headers, kind], question) == Response(b"pogchamp-kappa-360noscope")
    assert asked("twitch", headers, question) is None
    assert asked("twitch", [*signed("twitch", "another one", body=question), kind], question) is Reason.MISMATCH


def test_discord_gets_an_empty_answer_to_its_ping_and_a_401_if_it_is_not_discord() -> None:
    ping, event = b'{"version":1,"type":0}', b'{"version":1,"type":1,"event":{"type":"X"}}'
    headers, public = discord(ping)

    assert asked("discord", headers, ping, public) == Response(b"", status=204)
    assert asked("discord", headers, ping, "00" * 32) is Reason.MISMATCH
    assert asked("discord", discord(event)[0], event, public) is None


def test_woocommerce_gets_a_200_for_its_unsigned_ping_and_for_nothing_else() -> None:
    assert asked("woocommerce", [], b"webhook_id=42") == Response(b"")
    for body in (b"webhook_id=", b"webhook_id=42&x=1", b"webhook_id=4 2", BODY):
        assert asked("woocommerce", [], body) is Reason.MISSING


def got(name: str, query: str, *secrets: str, method: str = "GET") -> Any:
    posting = Posting([], b"", secrets, {}, NOW, method, query.encode())
    return SCHEMES[name].answer(posting, Reason.MISSING)


@pytest.mark.parametrize(
    ("query", "secrets", "expected"),
    [
        ("hub.mode=subscribe&hub.verify_token=tok&hub.challenge=11", ["app-secret:tok"], Response(b"11")),
        ("hub.mode=subscribe&hub.verify_token=app-secret&hub.challenge=11", ["app-secret"], Response(b"11")),
        ("hub.mode=subscribe&hub.verify_token=b&hub.challenge=11", ["app-secret:a", "app-secret:b"], Response(b"11")),
        ("hub.mode=subscribe&hub.verify_token=app-secret&hub.challenge=11", ["app-secret:tok"], Reason.MISMATCH),
        ("hub.mode=subscribe&hub.verify_token=no&hub.challenge=11", ["app-secret:tok"], Reason.MISMATCH),
        ("hub.mode=subscribe&hub.verify_token=&hub.challenge=11", ["app-secret:tok"], Reason.MISSING),
        ("hub.mode=subscribe&hub.challenge=11", ["app-secret:tok"], Reason.MISSING),
        ("hub.mode=subscribe&hub.verify_token=tok&hub.challenge=<b>", ["app-secret:tok"], Reason.MALFORMED),
        ("hub.mode=subscribe&hub.verify_token=tok", ["app-secret:tok"], Reason.MALFORMED),
        ("hub.mode=subscribe&hub.verify_token=%E9&hub.challenge=1", ["app-secret:tok"], Reason.MISMATCH),
        ("hub.mode=subscribe&hub.verify_token=tok&hub.challenge=1", [], Reason.MISMATCH),
        ("hub.mode=unsubscribe&hub.verify_token=tok&hub.challenge=1", ["app-secret:tok"], None),
        ("", ["app-secret:tok"], None),
        ("a=1&" * 100 + "hub.mode=subscribe", ["app-secret:tok"], None),
    ],
)
def test_meta_gets_its_challenge_back_if_it_knows_the_verify_token(
    query: str, secrets: list[str], expected: Any
) -> None:
    assert got("meta", query, *secrets) == expected


def test_metas_verify_token_signs_no_event() -> None:
    headers = raw({"X-Hub-Signature-256": "sha256=" + mac("the-token", BODY).hex()})

    assert judged("meta", headers, "app-secret:the-token") is Reason.MISMATCH
    good = raw({"X-Hub-Signature-256": "sha256=" + mac("app-secret", BODY).hex()})
    assert judged("meta", good, "app-secret:the-token") is VERIFIED


def test_x_gets_the_signature_of_its_token_and_of_no_event() -> None:
    told = got("x", "crc_token=abc", KEY, "older-secret")

    assert json.loads(told.body) == {"response_token": "sha256=" + b64(mac(KEY, b"abc"))}
    assert got("x", "crc_token=%7B%22a%22%3A1%7D", KEY) is Reason.MALFORMED
    assert got("x", "crc_token=abc") is Reason.UNCONFIGURED
    assert got("x", "other=abc", KEY) is None


@pytest.mark.parametrize("name", SCHEMES)
def test_only_meta_and_x_ask_by_get_and_nobody_by_another_method(name: str) -> None:
    key = "0123456789"
    query = f"hub.mode=subscribe&hub.verify_token={key}&hub.challenge=1&crc_token=1"

    assert (got(name, query, key) is not None) == (name in ("meta", "x"))
    for method in ("HEAD", "PUT", "OPTIONS", "DELETE"):
        assert got(name, query, key, method=method) is None


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=lambda scheme: scheme.name)
def test_every_scheme_says_what_it_reads_by_default_and_for_whom_it_is(scheme: Scheme) -> None:
    parse_source(scheme.dedupe)
    parse_source(scheme.type)
    assert scheme.summary
    assert scheme.takes
    assert set(scheme.name) <= set(string.ascii_lowercase + string.digits + "-")
    assert scheme.on_backlog_full in ("reject", "accept")


def test_who_soon_gives_up_is_not_refused_for_a_full_backlog() -> None:
    assert {name for name, scheme in SCHEMES.items() if scheme.on_backlog_full == "accept"} >= {"github", "slack"}
    general = ("none", "standard", "hmac", "basic", "bearer", "api-key", "stripe", "svix", "meta", "square")
    assert all(SCHEMES[name].on_backlog_full == "reject" for name in general)


@given(st.data())
def test_no_stranger_makes_a_scheme_raise_or_passes(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*PROVING, *PUBLIC]))
    known = [key for key, _ in signed(name)] if name in PROVING else [key for key, _ in discord(b"")[0]]
    headers = data.draw(st.lists(st.tuples(st.sampled_from(known), st.binary(max_size=80)), max_size=6))
    body, query = data.draw(st.binary(max_size=40)), data.draw(st.binary(max_size=40))
    key = secret(name) if name in PROVING else "00" * 32
    posting = Posting(headers, body, (key,), options(name), NOW, data.draw(st.sampled_from(["GET", "POST"])), query)

    verdict = SCHEMES[name].verify(posting)

    assert isinstance(verdict, Reason)
    assert SCHEMES[name].answer(posting, verdict) is None or name in ("meta", "x", "woocommerce")
