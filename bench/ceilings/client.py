"""A bare client: ours, posting the same bytes to the same sink as fast as it can, and nothing else."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from ipaddress import ip_network

import uvloop

from bench.traffic import small_body
from delivery.client import Client
from delivery.exchange import Outcome, Outgoing

HEADERS = (
    (b"content-type", b"application/json"),
    (b"user-agent", b"Hookyard/0"),
    (b"webhook-id", b"evt_0000000000000000000000000000"),
    (b"webhook-timestamp", b"1700000000"),
    (b"webhook-signature", b"v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="),
    (b"hookyard-partner", b"p00"),
    (b"hookyard-sequence", b"100000"),
    (b"hookyard-attempt", b"1"),
    (b"hookyard-event-type", b"order.created"),
)


async def post(port: int, concurrency: int, seconds: float) -> dict[str, float]:
    """So many at a time for so long; how many were answered, and the CPU it took."""
    client = Client((ip_network("127.0.0.0/8"),))
    request = Outgoing(f"http://127.0.0.1:{port}/ok", HEADERS, small_body(), 30.0)
    began_at, cpu = time.monotonic(), time.process_time()

    async def lane() -> int:
        n = 0
        while time.monotonic() - began_at < seconds:
            n += (await client.send(request)).outcome is Outcome.SUCCESS
        return n

    sent = sum(await asyncio.gather(*(lane() for _ in range(concurrency))))
    told = {"sent": sent, "seconds": time.monotonic() - began_at, "cpu_seconds": time.process_time() - cpu}
    await client.close()
    return told


if __name__ == "__main__":
    print(json.dumps(uvloop.run(post(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))), flush=True)
