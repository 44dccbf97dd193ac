"""A load generator that costs less than what it measures: requests are made before the first is sent.

A process of its own: it reads a `Traffic` from its first line of stdin, says `ready` when it is connected, starts at
the second line, writes the ledger, and tells what it did as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from pathlib import Path
from typing import cast

import uvloop

from bench.ledger import Ledger
from bench.traffic import Traffic, requests

TICK_SECONDS = 0.001


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._row = 0
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._load.idle.append(self)

    def connection_lost(self, _: Exception | None) -> None:
        self._load.lost(self)

    def send(self, row: int, request: bytes) -> None:
        self._row = row
        assert self._transport is not None
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        end = data.find(b"\r\n\r\n")
        start = data.find(b"content-length: ", 0, end) + 16
        if end < 0 or (start > 15 and len(data) < end + 4 + int(data[start : data.index(b"\r\n", start)])):
            self._rest = data
            return
        self._rest = b""
        row, self._row = self._row, 0
        self._load.answered(self, row, int(data[9:12]))

    @property
    def is_busy(self) -> bool:
        return self._row > 0


class Load:
    """One run of a traffic."""

    def __init__(self, traffic: Traffic, ledger: Ledger) -> None:
        self._traffic, self._ledger = traffic, ledger
        self._requests = list(requests(traffic))
        self._sent = self._answered = 0
        self._began_at = self._until = 0.0
        self._done = asyncio.get_running_loop().create_future()
        self.idle: list[Connection] = []
        self._connecting: asyncio.Future[None]

    async def connect(self) -> None:
        """All connections are there."""
        await asyncio.gather(*(self._connect() for _ in range(self._traffic.connections)))

    async def run(self) -> dict[str, float]:
        """Everything is sent and answered, or its connection was lost; `sent` says how many."""
        cpu = time.process_time()
        self._began_at = time.monotonic()
        self._until = self._began_at + self._traffic.seconds
        self._feed()
        await self._done
        return {
            "sent": self._sent,
            "began_at": self._began_at,
            "ended_at": time.monotonic(),
            "cpu_seconds": time.process_time() - cpu,
        }

    def answered(self, connection: Connection, row: int, status: int) -> None:
        """An answer is in: the connection takes the next request."""
        self._ledger.answered_at[row] = time.monotonic()
        self._ledger.status[row] = status
        self._answered += 1
        self.idle.append(connection)
        self._feed_idle()

    def lost(self, connection: Connection) -> None:
        """A connection was closed: its request counts as failed, and another connection takes its place."""
        if connection in self.idle:
            self.idle.remove(connection)
        self._answered += connection.is_busy
        if not self._done.done():
            self._connecting = asyncio.ensure_future(self._connect())
            self._feed_idle()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: Connection(self), "127.0.0.1", self._traffic.port)

    def _feed(self) -> None:
        """Feeds those that wait, now and, in an open loop, whenever something may be due."""
        self._feed_idle()
        if not self._done.done():
            asyncio.get_running_loop().call_later(TICK_SECONDS if self._traffic.rate else 0.1, self._feed)

    def _feed_idle(self) -> None:
        now, rate = time.monotonic(), self._traffic.rate
        is_over = now >= self._until or self._sent == self._traffic.events
        if is_over and self._sent == self._answered and not self._done.done():
            self._done.set_result(None)
        while self.idle and not is_over:
            due_at = self._began_at + self._sent / rate if rate else now
            if due_at > now:
                return
            row = self._traffic.first + self._sent
            self._ledger.due_at[row] = due_at
            self.idle.pop().send(row, self._requests[self._sent % len(self._requests)])
            self._sent += 1
            is_over = self._sent == self._traffic.events


async def main(ledger: Ledger) -> None:
    """One run, told by lines."""
    load = Load(Traffic.load(sys.stdin.readline()), ledger)
    await load.connect()
    gc.collect()
    gc.disable()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps(await load.run()), flush=True)


if __name__ == "__main__":
    uvloop.run(main(Ledger(Path(sys.argv[1]), int(sys.argv[2]))))
