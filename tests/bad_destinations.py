"""Destinations that misbehave, on loopback: raw sockets, one behaviour each, and a record of what reached them."""

import asyncio
import contextlib
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter


@dataclass(slots=True)
class Place:
    """A destination that listens, and what it saw."""

    port: int = 0
    connections: int = 0
    open: int = 0
    requests: list[bytes] = field(default_factory=list)  # heads
    bodies: list[bytes] = field(default_factory=list)
    sent: int = 0  # bytes of answers

    def url(self, path: str = "/hook", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


Behaviour = Callable[[Place, Reader, Writer], Awaitable[None]]
"""What it does with one request already read; it may close the writer."""


@contextlib.asynccontextmanager
async def serving(
    behave: Behaviour, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Place]:
    """The destination listens until the block ends; then its connections are cut."""
    place = Place()
    tasks: set[asyncio.Task[None]] = set()

    async def converse(reader: Reader, writer: Writer) -> None:
        place.connections += 1
        place.open += 1
        try:
            while not writer.is_closing():
                await read_request(place, reader)
                await behave(place, reader, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the other side, or the test, has had enough
        finally:
            place.open -= 1
            writer.transport.abort()

    def connected(reader: Reader, writer: Writer) -> None:
        task = asyncio.get_running_loop().create_task(converse(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, host, 0, ssl=tls)
    place.port = server.sockets[0].getsockname()[1]
    try:
        yield place
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.001)  # the transports close in the loop's next turns


async def read_request(place: Place, reader: Reader) -> None:
    """One whole request, recorded."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: ([0-9]+)\r\n", head)
    body = await reader.readexactly(int(length[1]) if length else 0)
    place.requests.append(head)
    place.bodies.append(body)


# --- behaviours ------------------------------------------------------------------------------------------------------


def saying(data: bytes, *, close: bool = False) -> Behaviour:
    """The same bytes each time."""

    async def behave(place: Place, reader: Reader, writer: Writer) -> None:
        writer.write(data)
        if close:
            writer.close()

    return behave


def answering(status: int, body: bytes = b"ok", *headers: bytes) -> Behaviour:
    """A proper answer."""
    lines = [b"HTTP/1.1 %d Scripted" % status, b"content-length: %d" % len(body), *headers]
    return saying(b"\r\n".join(lines) + b"\r\n\r\n" + body)


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """One behaviour per request, the last one for all that follow."""
    left = list(behaviours)

    async def behave(place: Place, reader: Reader, writer: Writer) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(place, reader, writer)

    return behave


async def hang(place: Place, reader: Reader, writer: Writer) -> None:
    """Reads on and says nothing, until the other side closes."""
    await reader.read()


async def reset(place: Place, reader: Reader, writer: Writer) -> None:
    """Resets the connection."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def close(place: Place, reader: Reader, writer: Writer) -> None:
    """Closes without a byte."""
    writer.close()


def dripping(start: bytes, drop: bytes, every: float = 0.02) -> Behaviour:
    """Some bytes, and then a few more for ever."""

    async def behave(place: Place, reader: Reader, writer: Writer) -> None:
        writer.write(start)
        while not writer.is_closing():
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(every)

    return behave


def flooding(start: bytes, chunk: bytes, total: int) -> Behaviour:
    """As much as the other side takes."""

    async def behave(place: Place, reader: Reader, writer: Writer) -> None:
        writer.write(start)
        while place.sent < total and not writer.is_closing():
            writer.write(chunk)
            place.sent += len(chunk)
            await writer.drain()

    return behave


async def answer_then_close_unseen(place: Place, reader: Reader, writer: Writer) -> None:
    """Answers as if to keep the connection, waits for the next request to be on its way, and closes unread.

    The receiving side is stopped before the answer goes out, so what comes next stays unacknowledged: the race between
    an idle connection's end and the next request, held open.
    """
    connection: socket.socket = writer.get_extra_info("socket")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
    await writer.drain()
    connection.shutdown(socket.SHUT_RDWR)
    writer.close()
