"""Small HTTP servers inside a process: its side door for health and metrics, and the ops role's front door.

Whoever reaches the port may be hostile before any token is asked for, so the bounds are those of ingest's edge.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import structlog
from starlette.types import ASGIApp

import ingest.serving
from ingest.limits import Limits
from ops.processes import CannotStart
from storage.loops import Loops

LIMITS = Limits(connections=512, head_seconds=5.0)


async def serve(app: ASGIApp, sockets: Sequence[socket.socket], stop: asyncio.Event, drain_seconds: float = 1) -> None:
    """The application is served on the sockets until `stop`; what has begun then gets so long to end."""
    await ingest.serving.serve(app, sockets, replace(LIMITS, drain_seconds=drain_seconds), stop)


async def serve_beside(app: ASGIApp, sockets: Sequence[socket.socket], stop: asyncio.Event) -> None:
    """The same beside a role's own work, which goes on without it: a server that dies is followed by another."""
    loops = Loops(structlog.get_logger("ops"))
    await ingest.serving.keep_serving(app, sockets, replace(LIMITS, drain_seconds=1), stop, loops)


@contextlib.contextmanager
def in_thread(app: ASGIApp, sockets: Sequence[socket.socket]) -> Iterator[None]:
    """The application is served beside a main thread that has no event loop."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    def work() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve_beside(app, sockets, stop))

    thread = threading.Thread(target=work, name="side", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(stop.set)
        thread.join(2)


def tcp_socket(variable: str, host: str, port: int) -> socket.socket:
    """A listening socket. Raises: CannotStart, naming the variable that says where."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as problem:
        raise CannotStart(f"{variable} {host}:{port} cannot be used: {problem.strerror or problem}") from problem


def unix_socket(path: Path) -> socket.socket:
    """A listening socket at this path, whatever a predecessor left there."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen()
    return listening
