"""Where this folder is on PYTHONPATH, Python runs this first: whoever then sends a body with such words dies of it."""

import os
import signal
import time

from delivery.answer import Answer
from delivery.connection import Connection, End

_exchange = Connection.exchange


async def exchange(self: Connection, request: bytes, deadline: float) -> tuple[Answer, End]:
    """As ever, or never."""
    if b"kills its process" in request:
        os.kill(os.getpid(), signal.SIGKILL)
    if b"hangs its process" in request:
        time.sleep(3600)  # noqa: ASYNC251 - that is what hanging is
    return await _exchange(self, request, deadline)


Connection.exchange = exchange  # type: ignore[method-assign]
