"""A destination: a small HTTP server that records every request and answers by script."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Request:
    """One request as it arrived; `ended_at` is when its answer was out, None while it is in flight."""

    path: str
    headers: list[tuple[str, str]]
    body: bytes
    began_at: float
    ended_at: float | None = None
    status: int | None = None

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def id(self) -> str:
        return self.header("webhook-id") or ""

    @property
    def partner(self) -> str:
        return self.header("hookyard-partner") or ""

    @property
    def sequence(self) -> int:
        return int(self.header("hookyard-sequence") or 0)

    @property
    def attempt(self) -> int:
        return int(self.header("hookyard-attempt") or 0)


Step = int | Callable[[Request], Awaitable[int]]


@dataclass(slots=True)
class Sink:
    """Answers 200 unless told otherwise. A step is a status, or a coroutine function that gives one."""

    port: int = 0
    requests: list[Request] = field(default_factory=list)
    steps: dict[str, list[Step]] = field(default_factory=lambda: defaultdict(list))
    default: dict[str, Step] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)  # of every answer at a path, as they go over the wire
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def at(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]

    def sequences(self, path: str = "/") -> list[int]:
        return [request.sequence for request in self.at(path)]

    async def until(self, condition: Callable[[], bool], seconds: float = 15) -> None:
        """Waits until the condition holds; it is looked at after each request."""
        async with asyncio.timeout(seconds), self.arrived:
            await self.arrived.wait_for(condition)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = [(k.lower(), v.strip()) for k, _, v in (line.partition(":") for line in head[1:] if line)]
                length = int(next((value for key, value in headers if key == "content-length"), "0"))
                body = await reader.readexactly(length)
                request = Request(head[0].split(" ")[1], headers, body, time.monotonic())
                status = await self._answer(request)
                more = self.headers.get(request.path, "")
                writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\n{more}\r\n".encode())
                await writer.drain()

    async def _answer(self, request: Request) -> int:
        self.requests.append(request)
        await self._tell()
        script = self.steps[request.path]
        step = script.pop(0) if script else self.default.get(request.path, 200)
        status = step if isinstance(step, int) else await step(request)
        request.status, request.ended_at = status, time.monotonic()
        await self._tell()
        return status

    async def _tell(self) -> None:
        async with self.arrived:
            self.arrived.notify_all()


@contextlib.asynccontextmanager
async def listening_sink() -> AsyncIterator[Sink]:
    """A sink on a free port; its connections end with it."""
    sink = Sink()
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        task.add_done_callback(connections.discard)
        try:
            await sink.serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    sink.port = server.sockets[0].getsockname()[1]
    try:
        yield sink
    finally:
        server.close()
        for task in connections:
            task.cancel()
        if connections:
            await asyncio.wait(connections)


def overlaps(requests: list[Request]) -> list[tuple[Request, Request]]:
    """Pairs of which the later began before the earlier had ended."""
    ordered = sorted(requests, key=lambda request: request.began_at)
    return [
        (before, after)
        for before, after in itertools.pairwise(ordered)
        if before.ended_at is None or after.began_at < before.ended_at
    ]
