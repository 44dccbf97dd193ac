"""Who proves it how: the secret stays here, a provider's question is answered, everybody else is sent away."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time

import httpx

from tests.acceptance.product import Product
from tests.acceptance.receiver import Receiver

SECRET = "hunter2-hunter2"
SENDERS = {
    "bearer": (),
    "api-key": ("--verify-header", "X-Token"),
    "hmac": ("--verify-header", "X-Sign", "--verify-content", "{timestamp}.{body}", "--verify-encoding", "base64"),
    "stripe": (),
    "meta": (),
    "slack": (),
}


async def test_a_sender_proves_itself_and_its_secret_goes_no_further(product: Product, receiver: Receiver) -> None:
    await product.cli("destination", "add", "vault", receiver.url("/vault"))

    async def add(scheme: str, *options: str) -> None:
        await product.cli("partner", "add", f"by-{scheme}", "--verify", scheme, "--secret", SECRET, *options)
        await product.cli("subscribe", f"by-{scheme}", "vault")

    await asyncio.gather(*(add(scheme, *options) for scheme, options in SENDERS.items()))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{product.ingest_port}", trust_env=False) as stranger:
        for scheme in SENDERS:
            await _known(stranger, scheme)
        asked = await stranger.get(f"/in/by-meta?hub.mode=subscribe&hub.verify_token={SECRET}&hub.challenge=42")
        not_asked = await stranger.get(f"/in/by-slack?hub.mode=subscribe&hub.verify_token={SECRET}&hub.challenge=42")
        question = b'{"type":"url_verification","challenge":"abc"}'
        stamp = str(int(time.time()))
        proof = hmac.new(SECRET.encode(), b"v0:" + stamp.encode() + b":" + question, hashlib.sha256).hexdigest()
        signed = {"x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={proof}"}
        answered = await stranger.post("/in/by-slack", content=question, headers=signed)
    await asyncio.gather(*(product.ask("send", f"by-{scheme}") for scheme in SENDERS))
    await receiver.until(lambda: len(receiver.arrivals) >= len(SENDERS))
    await product.settled()

    assert (asked.status_code, asked.text) == (200, "42")
    assert (not_asked.status_code, not_asked.headers["allow"]) == (405, "POST")
    assert (answered.status_code, answered.text) == (200, "abc")
    assert sorted(arrival.all("hookyard-partner")[0] for arrival in receiver.arrivals) == sorted(
        f"by-{scheme}" for scheme in SENDERS
    )
    for arrival in receiver.arrivals:
        assert SECRET not in str(arrival.headers)
        assert not arrival.all("x-token")
    for listing in (("partner", "show", "by-bearer"), ("audit",), ("config",)):
        assert SECRET.encode() not in (await product.cli(*listing)).out


async def _known(stranger: httpx.AsyncClient, scheme: str) -> None:
    """Without a proof ingest answers 401: it knows the partner."""
    async with asyncio.timeout(30):
        while (answer := await stranger.post(f"/in/by-{scheme}", content=b"{}")).status_code == 404:
            await asyncio.sleep(0.1)
    assert answer.status_code == 401
