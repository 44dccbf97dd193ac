"""What ingest does for a verification scheme: questions answered, refusals alike, secrets left out of what is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import structlog

from domain.verification import Draft, chosen_options, find_scheme
from tests.edge_stand import ACME, NOW, Stand

KEY = "0123456789abcdef"
QUESTION = b'{"type":"url_verification","challenge":"abc123"}'
META = "hub.mode=subscribe&hub.challenge=42&hub.verify_token="


def set_partner(stand: Stand, verify: str, *secrets: str, **options: str) -> None:
    """`acme` proves itself by this scheme."""
    scheme = find_scheme(verify)
    stand.configuration.set(
        replace(
            ACME, verify=verify, verify_options=chosen_options(scheme, options), secrets=secrets or (KEY,),
            dedupe=scheme.dedupe, type=scheme.type,
        )
    )  # fmt: skip


def signed(verify: str, body: bytes, key: str = KEY, **options: str) -> dict[str, str]:
    scheme = find_scheme(verify)
    return dict(scheme.sign(Draft(body, key, chosen_options(scheme, options), NOW, "m1", None)))


async def test_a_signed_question_is_answered_and_is_no_event(stand: Stand) -> None:
    set_partner(stand, "slack")

    answer = await stand.client.post("/in/acme", content=QUESTION, headers=signed("slack", QUESTION))

    assert (answer.status_code, answer.text) == (200, "abc123")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not stand.log.arrivals
    assert stand.counted("hookyard_questions_answered_total", partner="acme") == 1
    assert stand.counted("hookyard_events_refused_total", partner="acme", reason="unauthenticated") == 0


async def test_a_question_without_a_proof_gets_a_401_like_every_other_post(stand: Stand) -> None:
    set_partner(stand, "slack")
    forged = signed("slack", QUESTION, "another secret")

    answers = [
        await stand.client.post("/in/acme", content=QUESTION),
        await stand.client.post("/in/acme", content=QUESTION, headers=forged),
        await stand.client.post("/in/acme", content=b"{}", headers=signed("slack", QUESTION)),
    ]

    assert [answer.status_code for answer in answers] == [401, 401, 401]
    assert len({answer.content for answer in answers}) == 1
    assert b"abc123" not in answers[0].content
    assert stand.counted("hookyard_questions_answered_total", partner="acme") == 0


async def test_an_answer_without_content_has_no_length(stand: Stand) -> None:
    set_partner(stand, "woocommerce")
    empty = await stand.client.post("/in/acme", content=b"webhook_id=1")
    assert (empty.status_code, empty.headers["content-length"]) == (200, "0")


async def test_a_question_by_get_is_answered_to_who_knows_the_verify_token(stand: Stand) -> None:
    set_partner(stand, "meta", f"{KEY}:a-word")

    right = await stand.client.get(f"/in/acme?{META}a-word")
    with structlog.testing.capture_logs() as logged:
        wrong = await stand.client.get(f"/in/acme?{META}another")

    assert (right.status_code, right.text) == (200, "42")
    assert (wrong.status_code, wrong.json()["reason"]) == (401, "unauthenticated")
    assert stand.counted("hookyard_verification_failures_total", partner="acme", reason="mismatch") == 1
    assert [(line["event"], line["reason"]) for line in logged] == [("ingest.unverified", "mismatch")]
    assert "a-word" not in str(logged)
    assert not stand.log.arrivals


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("GET", "/in/acme", b""),
        ("GET", "/in/acme?a=b", b""),
        ("GET", f"/in/acme?{META}a-word", b"body"),
        ("HEAD", f"/in/acme?{META}a-word", b""),
        ("PUT", f"/in/acme?{META}a-word", b""),
    ],
)
async def test_what_is_no_question_is_a_405_there_too(stand: Stand, method: str, path: str, content: bytes) -> None:
    set_partner(stand, "meta", f"{KEY}:a-word")

    answer = await stand.client.request(method, path, content=content)

    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("verify", ["none", "github", "slack", "hmac"])
async def test_nobody_else_is_asked_by_get(stand: Stand, verify: str) -> None:
    set_partner(stand, verify, **({"header": "x-sign"} if verify == "hmac" else {}))

    answer = await stand.client.get(f"/in/acme?{META}{KEY}&crc_token=abc")

    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("verify", "options", "header"),
    [
        ("bearer", {}, "Authorization"),
        ("basic", {}, "Authorization"),
        ("api-key", {"header": "X-Token"}, "X-Token"),
        ("gitlab", {}, "X-Gitlab-Token"),
        ("telegram", {}, "X-Telegram-Bot-Api-Secret-Token"),
    ],
)
async def test_a_header_that_is_the_secret_is_not_stored(
    stand: Stand, verify: str, options: dict[str, str], header: str
) -> None:
    key = f"ann:{KEY}"
    set_partner(stand, verify, key, **options)
    proof = signed(verify, b"{}", key, **options)

    answer = await stand.client.post("/in/acme", content=b"{}", headers=proof | {"x-ok": "1"})

    assert answer.status_code == 202
    (arrival,) = stand.log.arrivals
    assert b"x-ok:1" in arrival.headers
    assert header.lower().encode() not in arrival.headers
    assert proof[header].encode() not in arrival.headers


@pytest.mark.parametrize(
    ("verify", "told"),
    [("basic", 'Basic realm="hookyard", charset="UTF-8"'), ("bearer", "Bearer"), ("github", None)],
)
async def test_a_401_says_how_to_authenticate_where_http_has_a_word_for_it(
    stand: Stand, verify: str, told: Any
) -> None:
    set_partner(stand, verify)

    answer = await stand.post()

    assert (answer.status_code, answer.headers.get("www-authenticate")) == (401, told)


async def test_the_url_of_the_provider_counts_with_the_query_that_came(stand: Stand) -> None:
    set_partner(stand, "twilio", url="https://hooks.example.com/in/acme?x=1")
    form = {"content-type": "application/x-www-form-urlencoded"}
    headers = signed("twilio", b"A=1", url="https://hooks.example.com/in/acme") | form

    assert (await stand.client.post("/in/acme", content=b"A=1", headers=headers)).status_code == 202
    assert (await stand.client.post("/in/acme?x=2", content=b"A=1", headers=headers)).status_code == 401
