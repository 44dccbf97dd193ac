"""Where runs take place: servers of their own, one `hookyard up`, and lines between it and everybody it talks to."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.acceptance.product import Product, descendants
from tests.acceptance.receiver import Receiver, listening_receiver
from tests.chaos.desk import Desk, opened
from tests.chaos.line import Line
from tests.chaos.town import commands
from tests.servers import Servers, execute

LEASE_SECONDS = 2.0
KNOWN_SECONDS = 2.0  # until a new configuration is in force everywhere


@dataclass(frozen=True, slots=True)
class Happened:
    """A fault that struck; both instants of time.monotonic."""

    fault: str
    touches: frozenset[str]  # worker, ingest, postgres, valkey, edge, destinations
    began_at: float
    ended_at: float


@dataclass(slots=True)
class Stage:
    """What faults strike. `until` (time.monotonic) is when the last of them ends."""

    servers: Servers
    receiver: Receiver
    database: Line
    redis: Line
    edge: Line  # from the partners
    destinations: Line
    product: Product
    desk: Desk
    until: float = 0.0
    happened: list[Happened] = field(default_factory=list)
    locks: dict[str, asyncio.Lock] = field(
        default_factory=lambda: {
            name: asyncio.Lock() for name in ("postgres", "valkey", "edge", "destinations", "product")
        }
    )

    async def lasting(self, seconds: float) -> None:
        """So long, or until the weather is over."""
        await asyncio.sleep(max(0.0, min(seconds, self.until - time.monotonic())))

    async def processes(self, role: str) -> list[int]:
        """The processes of the role; one is waited for where there is none at the moment."""
        async with asyncio.timeout(30):
            while not (pids := self.product.processes(role)):
                await asyncio.sleep(0.1)
        return pids

    def send(self, pid: int, number: signal.Signals) -> None:
        """A process that is no more has nothing to hear."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    async def sql(self, statement: str) -> None:
        """Run by the super-user, past the line, outside any transaction."""
        await asyncio.to_thread(execute, self.servers.url_of("hookyard"), statement)

    def postgres_family(self) -> list[int]:
        """The postmaster, and every process of it."""
        pid = self.servers.postgres_process.pid
        return [pid, *descendants(pid)]

    async def restart_postgres(self, number: signal.Signals, away_seconds: float) -> None:
        """Ended by the signal (SIGKILL: all of it), away for a while, back."""
        for pid in self.postgres_family() if number is signal.SIGKILL else [self.servers.postgres_process.pid]:
            self.send(pid, number)
        await asyncio.to_thread(self.servers.postgres_process.wait, 30)
        await self.lasting(away_seconds)
        await asyncio.to_thread(self.servers.start_postgres)

    async def restart_valkey(self, away_seconds: float, data: Path | None = None) -> None:
        """Killed, away for a while, back; with `data` for its files where they are given."""
        self.servers.valkey_process.kill()
        await asyncio.to_thread(self.servers.valkey_process.wait, 30)
        if data is not None:
            shutil.rmtree(self.valkey_data)
            await asyncio.to_thread(copy_as_it_is, data, self.valkey_data)
        await self.lasting(away_seconds)
        await asyncio.to_thread(self.servers.start_valkey)

    @property
    def valkey_data(self) -> Path:
        return self.servers.valkey.place.root / "valkey" / "appendonlydir"


@contextlib.asynccontextmanager
async def standing(servers: Servers) -> AsyncIterator[Stage]:
    """A stage on these servers, with the whole town known; nothing of it is left afterwards."""
    async with contextlib.AsyncExitStack() as held:
        receiver = await held.enter_async_context(listening_receiver())
        database, redis, destinations = [
            await held.enter_async_context(Line(port))
            for port in (servers.postgres.port, servers.valkey.port, receiver.port)
        ]
        product = Product(
            _folder(),
            DATABASE_URL=_through(servers.postgres.url, servers.postgres.port, database),
            REDIS_URL=_through(servers.redis_url, servers.valkey.port, redis),
            MASTER_KEY=base64.b64encode(secrets.token_bytes(32)).decode(),
            ALLOW_NETWORKS="127.0.0.0/8",
            LEASE_SECONDS=f"{LEASE_SECONDS:g}",
            INGEST_PROCESSES="2",
            WORKER_PROCESSES="2",
            LOG_FORMAT="json",
        )
        held.callback(shutil.rmtree, product.folder, ignore_errors=True)
        held.push_async_callback(_end, servers, product)
        edge = await held.enter_async_context(Line(product.ingest_port))
        await asyncio.to_thread(product.start)
        desk = await held.enter_async_context(opened(product.folder, product.environment))
        for argv in commands(f"http://127.0.0.1:{destinations.port}"):
            deed = await desk.do(*argv)
            assert deed.is_done, deed
        await asyncio.sleep(KNOWN_SECONDS)
        yield Stage(servers, receiver, database, redis, edge, destinations, product, desk)


async def _end(servers: Servers, product: Product) -> None:
    """A stopped server would not answer a command to stop either."""
    for pid in (servers.valkey_process.pid, servers.postgres_process.pid):
        for member in (pid, *descendants(pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGCONT)
    await asyncio.to_thread(product.destroy)


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="hookyard-chaos-"))
    folder.chmod(0o755)
    return folder


def copy_as_it_is(source: Path, target: Path) -> None:
    """A copy with the same owner, of files that may still be written."""
    subprocess.run(["cp", "-a", source, target], check=False, capture_output=True)


def _through(url: str, port: int, line: Line) -> str:
    return url.replace(f"127.0.0.1:{port}/", f"127.0.0.1:{line.port}/")
