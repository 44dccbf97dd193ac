"""What GitHub really sends, through `--verify github`, to a destination: every byte of it."""

from __future__ import annotations

import hashlib
import hmac
import json
import lzma
import uuid
from pathlib import Path

from tests.acceptance.invariants import changed, lanes_violations
from tests.acceptance.product import Product
from tests.acceptance.receiver import Receiver
from tests.acceptance.sender import JSON, sending

PAYLOADS = Path(__file__).parent.parent / "data" / "github_webhooks.json.xz"
SECRET = "It's a Secret to Everybody"  # of GitHub's documentation


def payloads() -> list[tuple[str, bytes]]:
    """Event type and body of each; the file says where they are from."""
    with lzma.open(PAYLOADS) as file:
        found = json.load(file)["payloads"]
    return [
        (one["event"], json.dumps(one["payload"], ensure_ascii=False, separators=(",", ":")).encode()) for one in found
    ]


def signed(event: str, body: bytes) -> list[str]:
    """The headers of one of GitHub's deliveries."""
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    return [
        JSON,
        "user-agent: GitHub-Hookshot/044aadd",
        f"x-github-event: {event}",
        f"x-github-delivery: {uuid.uuid4()}",
        f"x-hub-signature-256: sha256={signature}",
    ]


async def test_every_payload_that_github_sends_arrives_byte_for_byte(product: Product, receiver: Receiver) -> None:
    await product.cli("partner", "add", "github", "--verify", "github", "--secret", SECRET)
    await product.cli("destination", "add", "ci", receiver.url("/ci"))
    await product.cli("subscribe", "github", "ci")
    sent = payloads()

    async with sending("github", product.ingest_port) as github:
        for event, body in sent:
            await github.send(body, *signed(event, body))
        forged = await github.post(b"{}", *signed("push", b"{ }"))
        await receiver.until(lambda: len(receiver.successes("/ci")) == len(sent))

    assert len(sent) == 329
    assert forged.status == 401
    assert [(arrival.all("hookyard-event-type"), arrival.body) for arrival in receiver.arrivals] == [
        ([event], body) for event, body in sent
    ]
    assert [arrival.all("x-github-event") for arrival in receiver.arrivals] == [[event] for event, _ in sent]
    assert changed(receiver.arrivals, github.accepted) == []
    assert lanes_violations(receiver.arrivals) == {}
