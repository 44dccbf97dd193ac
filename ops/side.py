"""Small HTTP servers inside a process: its side door for health and metrics, and the ops role's front door.

Unlike ingest's edge they meet nobody hostile in numbers: uvicorn as it comes, without its hands on the signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from ops.processes import CannotStart

CONNECTIONS = 512
KEEP_ALIVE_SECONDS = 75


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone: the role decides when it stops."""
        yield


async def serve(app: ASGIApp, sockets: Sequence[socket.socket], stop: asyncio.Event, drain_seconds: float = 1) -> None:
    """The application is served on the sockets until `stop`; what has begun then gets so long to end."""
    server = _Server(_config(app, drain_seconds))
    serving = asyncio.create_task(server.serve(list(sockets)))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
    finally:
        stopping.cancel()


@contextlib.contextmanager
def in_thread(app: ASGIApp, sockets: Sequence[socket.socket]) -> Iterator[None]:
    """The application is served beside a main thread that has no event loop."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    def work() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve(app, sockets, stop))

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


def _config(app: ASGIApp, drain_seconds: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, int(drain_seconds)),
    )
