"""A TCP line to a server that can be slow, silent, deaf or cut, as networks are."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

CHUNK_BYTES = 1 << 16


@contextlib.asynccontextmanager
async def through(url: str) -> AsyncIterator[tuple[Line, str]]:
    """A line to the server of this URL, and the URL through it."""
    port = urlsplit(url).port
    assert port
    async with Line(port) as line:
        yield line, url.replace(f":{port}/", f":{line.port}/")


class Line:
    """Listens on a free port and passes bytes on to the server's. Change its weather at any time."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self.delay_seconds = 0.0  # for each chunk, either way
        self.swallows_answers = False  # what the server says is lost; what it is told arrives
        self._fatal: bytes | None = None
        self.lost = 0  # answers to fatal words
        self._speaks = asyncio.Event()
        self._speaks.set()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    def fall_silent(self) -> None:
        """Nothing arrives on either side, and no connection ends: half open."""
        self._speaks.clear()

    def speak(self) -> None:
        """What was held up arrives."""
        self._speaks.set()

    def loses_answer_to(self, words: bytes) -> None:
        """The server is told the next thing with these words, does it and is not heard: the connection breaks."""
        self._fatal = words

    def cut(self) -> None:
        """Every connection is reset."""
        for writer in self._open:
            writer.transport.abort()

    async def __aenter__(self) -> Line:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        _ = self._start(self._pass(reader, writer))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _pass(self, near_reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        """One connection, until one of its sides ends."""
        ends = [near]
        try:
            far_reader, far = await asyncio.open_connection("127.0.0.1", self._server_port)
            ends.append(far)
            self._open.add(far)
            doomed = asyncio.Event()
            asked = self._start(self._pump(near_reader, far, doomed, answers=False))
            answered = self._start(self._pump(far_reader, near, doomed, answers=True))
            await asyncio.wait((asked, answered), return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass  # nobody listens there at the moment
        finally:
            for writer in ends:
                self._open.discard(writer)
                writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, doomed: asyncio.Event, *, answers: bool
    ) -> None:
        """Until one side ends."""
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                await self._speaks.wait()
                if answers and doomed.is_set():
                    self.lost += 1
                    return
                if not answers and self._fatal is not None and self._fatal in chunk:
                    self._fatal = None
                    doomed.set()
                if not (answers and self.swallows_answers):
                    writer.write(chunk)
                    await writer.drain()
