"""An HTTP client that sends exactly the bytes it is told, well formed or not, and reads what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Part = bytes | float  # bytes to send, or seconds to pause


@dataclass(slots=True)
class Answer:
    """One HTTP answer. Status 0: the connection was closed without one."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def head(target: str, *lines: str, method: str = "POST") -> bytes:
    """A request head with a Host."""
    return "\r\n".join([f"{method} {target} HTTP/1.1", "host: edge.test", *lines, "", ""]).encode("latin-1")


def post(target: str, body: bytes, *lines: str) -> bytes:
    """A whole request with its length."""
    return head(target, f"content-length: {len(body)}", *lines) + body


def chunked(body: bytes, size: int = 1000, *, end: bool = True) -> bytes:
    """The body in chunks."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return framed + (b"0\r\n\r\n" if end else b"")


async def exchange(port: int, *parts: Part, timeout: float = 15) -> list[Answer]:
    """Sends the parts on one connection and reads answers until it is closed or nothing more is to come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sending = asyncio.create_task(_send(writer, parts))
    answers: list[Answer] = []
    try:
        async with asyncio.timeout(timeout):
            while (answer := await read_answer(reader)).status:
                answers.append(answer)
                if answer.headers.get("connection") == "close":
                    break
                if sending.done() and not await _more(reader):
                    break
    finally:
        sending.cancel()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return answers


async def ask(port: int, *parts: Part, timeout: float = 15) -> Answer:
    """The first answer to the parts, or status 0."""
    return next(iter(await exchange(port, *parts, timeout=timeout)), Answer())


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """The next final answer; status 0 at the end of the connection."""
    try:
        while True:
            line = await reader.readline()
            if not line:
                return Answer()
            answer = Answer(int(line.split()[1]))
            while (line := await reader.readline()) not in (b"\r\n", b""):
                name, _, value = line.decode("latin-1").partition(":")
                answer.headers[name.strip().lower()] = value.strip()
            if answer.status >= 200:
                answer.body = await reader.readexactly(int(answer.headers.get("content-length", "0")))
                return answer
    except (OSError, asyncio.IncompleteReadError):
        return Answer()


async def _more(reader: asyncio.StreamReader) -> bool:
    """Whether another answer begins soon."""
    try:
        async with asyncio.timeout(0.15):
            while not reader._buffer and not reader.at_eof():  # type: ignore[attr-defined]
                await asyncio.sleep(0.01)
    except TimeoutError:
        return False
    return not reader.at_eof()


async def _send(writer: asyncio.StreamWriter, parts: Sequence[Part]) -> None:
    with contextlib.suppress(OSError):
        for part in parts:
            if isinstance(part, bytes):
                writer.write(part)
                await writer.drain()
            else:
                await asyncio.sleep(part)
