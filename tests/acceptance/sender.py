"""A partner's own client: posts over one connection, one event after the other, and keeps what was acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.raw_http import Answer, post, read_answer

JSON = "content-type: application/json"
KNOWN_SECONDS = 2.0  # until a new partner is known everywhere


@dataclass(frozen=True, slots=True)
class Accepted:
    """An event that was acknowledged."""

    partner: str
    id: str
    sequence: int
    body: bytes
    kind: str = ""


@dataclass(slots=True)
class Sender:
    """One partner's connection to the edge."""

    partner: str
    port: int
    accepted: list[Accepted] = field(default_factory=list)
    _stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes, *headers: str, seconds: float = 30) -> Answer:
        """One POST; status 0 where the connection ended without an answer."""
        async with asyncio.timeout(seconds):
            if self._stream is None:
                self._stream = await asyncio.open_connection("127.0.0.1", self.port)
            reader, writer = self._stream
            try:
                writer.write(post(f"/in/{self.partner}", body, *headers))
                await writer.drain()
                answer = await read_answer(reader)
            except OSError:
                answer = Answer()
        if not answer.status or answer.headers.get("connection") == "close":
            await self.close()
        return answer

    async def send(self, body: bytes, *headers: str, kind: str = "") -> Accepted:
        """One POST that is answered 202. A partner made just now may not be known yet: a 404 has stored nothing."""
        deadline = time.monotonic() + KNOWN_SECONDS
        headers = headers or (JSON,)
        while (answer := await self.post(body, *headers)).status == 404 and not self.accepted:
            assert time.monotonic() < deadline, f"{self.partner} is not known after {KNOWN_SECONDS} s"
            await asyncio.sleep(0.02)
        assert answer.status == 202, answer
        told = answer.json
        assert told["duplicate"] is False, told
        self.accepted.append(Accepted(self.partner, told["event"], told["sequence"], body, kind))
        return self.accepted[-1]

    async def insist(self, body: bytes, identity: str, seconds: float = 30) -> Accepted:
        """As a partner's client does: the same event under the same id, until it is answered 202."""
        async with asyncio.timeout(seconds):
            while True:
                with contextlib.suppress(OSError):
                    answer = await self.post(body, JSON, f"webhook-id: {identity}")
                    if answer.status == 202:
                        break
                    assert answer.status in (0, 503), answer
                await asyncio.sleep(0.05)
        told = answer.json
        self.accepted.append(Accepted(self.partner, told["event"], told["sequence"], body))
        return self.accepted[-1]

    async def close(self) -> None:
        if self._stream is not None:
            writer, self._stream = self._stream[1], None
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def sending(partner: str, port: int) -> AsyncIterator[Sender]:
    """A sender whose connection ends with the block."""
    sender = Sender(partner, port)
    try:
        yield sender
    finally:
        await sender.close()
