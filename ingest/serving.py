"""Serving an application on sockets, within the bounds of `EdgeProtocol`: the sweep, and how a server stops.

The public edge, the doors for health and metrics, and the ops port are all served by this.
"""

import asyncio
import contextlib
import functools
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import structlog
import uvicorn
from starlette.types import ASGIApp

from ingest.limits import Limits
from ingest.protocol import EdgeProtocol
from storage.loops import Loops

BACKLOG = 2048  # connections the kernel keeps for us; more than somaxconn allows is cut to it
SWEEP_SECONDS = 1.0
LAST_WORD_SECONDS = 1.0  # of the drain, for telling those that were not done that they are cut off


async def serve(
    app: ASGIApp,
    sockets: Sequence[socket.socket],
    limits: Limits,
    stop: asyncio.Event,
    on_refused: Callable[[str], None] = lambda reason: None,
    loops: Loops | None = None,
) -> None:
    """The application is served on the sockets until `stop`; what has begun then gets the drain to end in.

    During the drain the door stays open: what to tell newcomers is the application's matter. `on_refused` learns the
    reason of every refusal that the application never saw.
    """
    server = _Server(_configured(app, limits, on_refused), max(0.0, limits.drain_seconds - LAST_WORD_SECONDS))
    serving = asyncio.create_task(server.serve(list(sockets)))
    stopping = asyncio.create_task(stop.wait())
    loops = loops or Loops(structlog.get_logger("serving"))
    sweeping = asyncio.create_task(loops.keep("sweep", server.sweep), name="sweep")
    try:
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
        if not stop.is_set():
            raise RuntimeError("the server ended, and nobody had told it to")
    finally:
        for task in (serving, stopping, sweeping):
            task.cancel()


async def keep_serving(
    app: ASGIApp, sockets: Sequence[socket.socket], limits: Limits, stop: asyncio.Event, loops: Loops
) -> None:
    """As `serve`, beside something that goes on without it: a server that dies is followed by another."""

    async def one() -> None:
        with contextlib.ExitStack() as stack:
            await serve(app, [stack.enter_context(door.dup()) for door in sockets], limits, stop, loops=loops)

    with contextlib.ExitStack() as stack:
        for door in sockets:
            stack.enter_context(door)
        await loops.keep("door for health", one, stop.is_set)


class _Server(uvicorn.Server):
    """uvicorn's server, without its hands on the process's signals."""

    def __init__(self, config: uvicorn.Config, drain_seconds: float) -> None:
        super().__init__(config)
        self._drain_seconds = drain_seconds

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone: the process decides when which of its servers stops."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """What has begun is answered or cut off; then the door is closed, and every connection."""
        begun = {connection for connection in self._connections() if connection.owes()}
        for connection in begun:
            connection.shutdown()  # after its answer
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_seconds):
                while begun & self.server_state.connections:
                    await asyncio.sleep(0.05)
        await super().shutdown(sockets)
        for connection in self._connections():
            connection.transport.abort()  # or one whose sender fetches no answer would hold up the process for ever

    async def sweep(self) -> None:
        """Ends what takes too long, once a second; until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = loop.time()
            for connection in self._connections():
                connection.enforce(now)

    def _connections(self) -> list[EdgeProtocol]:
        return [connection for connection in self.server_state.connections if isinstance(connection, EdgeProtocol)]


def _configured(app: ASGIApp, limits: Limits, on_refused: Callable[[str], None]) -> uvicorn.Config:
    protocol: Any = functools.partial(EdgeProtocol, limits=limits, on_refused=on_refused, awaited={})
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # its warnings are of invalid requests, which are counted; a line each would fill a disk
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=limits.keep_alive_seconds,
        timeout_graceful_shutdown=int(LAST_WORD_SECONDS),
    )
