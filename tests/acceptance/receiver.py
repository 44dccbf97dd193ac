"""A destination for many: one HTTP server that takes thousands of requests a second and writes all of them down."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import httptools


class Say(NamedTuple):
    """An answer: a status, at once or later."""

    status: int
    after_seconds: float = 0.0


RESET = Say(0)
"""No answer: the connection is reset."""


@dataclass(slots=True, eq=False)
class Arrival:
    """One request. `ended_at` is when its answer was out, or when the other side gave up on it (status None)."""

    path: str
    headers: list[tuple[str, str]]
    body: bytes
    began_at: float
    ended_at: float | None = None
    status: int | None = None
    id: str = ""
    partner: str = ""
    sequence: int = 0
    attempt: int = 0
    replay: str = ""

    def __post_init__(self) -> None:
        said = dict(self.headers)
        self.id, self.partner = said.get("webhook-id", ""), said.get("hookyard-partner", "")
        self.sequence = int(said.get("hookyard-sequence", 0))
        self.attempt, self.replay = int(said.get("hookyard-attempt", 0)), said.get("hookyard-replay", "")

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    @property
    def place(self) -> str:
        """The path without its slashes at the ends."""
        return self.path.strip("/")

    @property
    def is_success(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


Behaviour = Callable[[Arrival], Say | None]
"""What it answers; None: nothing, for as long as the other side waits."""


def fine(_: Arrival) -> Say:
    return Say(200)


def silent(_: Arrival) -> None:
    return None


def always(status: int) -> Behaviour:
    return lambda _: Say(status)


@dataclass(slots=True)
class Receiver:
    """Answers 200 unless told otherwise, path by path."""

    port: int = 0
    arrivals: list[Arrival] = field(default_factory=list)
    behaviours: dict[str, Behaviour] = field(default_factory=lambda: defaultdict(lambda: fine))

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def at(self, path: str) -> list[Arrival]:
        return [arrival for arrival in self.arrivals if arrival.path == path]

    def successes(self, path: str) -> list[int]:
        """The sequences that were answered 2xx there, in the order of arrival."""
        return [arrival.sequence for arrival in self.at(path) if arrival.is_success]

    async def until(self, condition: Callable[[], object], seconds: float = 20) -> None:
        """The condition holds; it is asked often."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.02)


class _Connection(asyncio.Protocol):
    """One connection: requests one after the other."""

    def __init__(self, receiver: Receiver, open_now: set[asyncio.BaseTransport]) -> None:
        self._receiver, self._open = receiver, open_now
        self._transport: asyncio.WriteTransport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._current: Arrival | None = None
        self._reset()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self._open.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._open.discard(self._transport)
        if self._current is not None and self._current.ended_at is None:
            self._current.ended_at = time.monotonic()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            assert self._transport
            self._transport.abort()

    def on_url(self, url: bytes) -> None:
        self._path += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        arrival = Arrival(self._path, self._headers, b"".join(self._body), time.monotonic())
        self._current = arrival
        self._receiver.arrivals.append(arrival)
        self._reset()
        said = self._receiver.behaviours[arrival.path](arrival)
        if said is None:
            return
        if said is RESET:
            assert self._transport
            self._transport.abort()
        elif said.after_seconds:
            asyncio.get_running_loop().call_later(said.after_seconds, self._answer, arrival, said.status)
        else:
            self._answer(arrival, said.status)

    def _answer(self, arrival: Arrival, status: int) -> None:
        if arrival.ended_at is not None or self._transport is None or self._transport.is_closing():
            return
        arrival.status, arrival.ended_at = status, time.monotonic()
        self._transport.write(b"HTTP/1.1 %d Said\r\ncontent-length: 0\r\n\r\n" % status)

    def _reset(self) -> None:
        self._path = ""
        self._headers: list[tuple[str, str]] = []
        self._body: list[bytes] = []


@contextlib.asynccontextmanager
async def listening_receiver() -> AsyncIterator[Receiver]:
    """A receiver on a free port; its connections end with it."""
    receiver = Receiver()
    open_now: set[asyncio.BaseTransport] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(receiver, open_now), "127.0.0.1", 0, backlog=1024)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for transport in list(open_now):
            transport.close()
        while open_now:
            await asyncio.sleep(0.001)
