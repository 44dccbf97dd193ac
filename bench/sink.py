"""A destination that costs little: a process that answers by the path it is called at, and writes the ledger.

`/ok` answers 200 at once, `/wait/50` after 50 ms, `/fail/30` with 503 for 30 requests in a hundred, `/hang` never.
What is answered with 200 is an arrival of the row that the header `bench-row` names, at the time the request was in;
but `/lose/30` forgets 30 in a hundred, so that the bench can be seen to notice.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import uvloop

from bench.ledger import Ledger

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"


class Connection(asyncio.Protocol):
    """One connection. Requests have a content-length and wait for the answer before them."""

    def __init__(self, ledger: Ledger, loop: asyncio.AbstractEventLoop) -> None:
        self._ledger, self._loop = ledger, loop
        self._rest = b""
        self._write: Callable[[bytes], None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = cast("asyncio.Transport", transport).write

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        end = data.find(b"\r\n\r\n")
        if end >= 0:
            head = data[:end].lower() + b"\r\n"
            if len(data) >= end + 4 + number(head, b"\r\ncontent-length: "):
                self._rest = b""
                self._take(head)
                return
        self._rest = data

    def _take(self, head: bytes) -> None:
        now = time.monotonic()
        _, what, *of = head[: head.index(b" http/")].split(b" ", 1)[1].split(b"/")
        if what == b"hang":
            return
        if what == b"fail" and random.random() * 100 < int(of[0]):
            self._write(UNAVAILABLE)
            return
        is_lost = what == b"lose" and random.random() * 100 < int(of[0])
        if not is_lost and (row := number(head, b"\r\nbench-row: ")):
            self._ledger.arrived(row, now, number(head, b"\r\nhookyard-sequence: "))
        if what == b"wait":
            self._loop.call_later(int(of[0]) / 1000, self._write, OK)
        else:
            self._write(OK)


def number(head: bytes, name: bytes) -> int:
    """The value of a header, 0 where it is missing; `name` is all that stands before it."""
    start = head.find(name)
    if start < 0:
        return 0
    start += len(name)
    return int(head[start : head.index(b"\r\n", start)])


async def serve(port: int, ledger: Ledger) -> None:
    """Serves until it is ended; says where on stdout."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(ledger, loop), "127.0.0.1", port, backlog=1024)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    gc.disable()
    uvloop.run(serve(int(sys.argv[1]), Ledger(Path(sys.argv[2]), int(sys.argv[3]))))
