"""Several machines: network namespaces with a worker each, and two networks by which they reach home.

Home is where the tests run: servers, `hookyard up` and the destinations. Each host has a line of its own to the network
of the servers and another to that of the destinations. A host that is cut off from one of them sends into nothing and
hears nothing; no connection ends, and nobody is told.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import secrets
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psycopg

from tests.acceptance.product import HOOKYARD, Product, until
from tests.acceptance.receiver import listening_receiver
from tests.chaos.desk import opened
from tests.chaos.line import Line
from tests.chaos.stage import KNOWN_SECONDS, LEASE_SECONDS, Stage
from tests.chaos.town import commands
from tests.servers import Servers

Network = Literal["servers", "destinations"]
NETWORKS: tuple[Network, ...] = ("servers", "destinations")
MARK = f"hy{os.getpid()}"


class NotAllowed(Exception):
    """Namespaces, or what is needed with them, cannot be had here."""


class Gate(Line):
    """A line that listens on an address others can reach."""

    def __init__(self, address: str, server_port: int) -> None:
        super().__init__(server_port)
        self._address = address

    async def __aenter__(self) -> Gate:
        self._server = await asyncio.start_server(self._accept, self._address, 0, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]
        return self


@dataclass(frozen=True, slots=True)
class Host:
    """A machine that is not home."""

    name: str
    plugs: dict[Network, str]  # home's end of its line to each network

    def pull_out(self, network: Network) -> None:
        """What it sends there arrives at nothing, and nothing arrives from there."""
        ip("link", "set", self.plugs[network], "nomaster")

    def plug_in(self, network: Network) -> None:
        ip("link", "set", self.plugs[network], "master", _bridge(network))


@dataclass(frozen=True, slots=True)
class Country:
    """Home's address in each network, and the hosts."""

    home: dict[Network, str]
    hosts: list[Host]


@contextlib.contextmanager
def country(names: tuple[str, ...]) -> Iterator[Country]:
    """The networks, and a host of each name joined to both; gone afterwards. Raises: NotAllowed."""
    with contextlib.ExitStack() as built:
        homes: dict[Network, str] = {}
        for n, network in enumerate(NETWORKS):
            homes[network] = _address(n, 1)
            _add(built, "link", _bridge(network), "type", "bridge")
            ip("link", "set", _bridge(network), "address", _card(n, 1), "up")
            ip("address", "add", f"{homes[network]}/24", "dev", _bridge(network))
        hosts = []
        for number, name in enumerate(names, start=2):
            space = f"{MARK}-{name}"
            _add(built, "netns", space)
            ip("-n", space, "link", "set", "lo", "up")
            ip("netns", "exec", space, "true")
            plugs: dict[Network, str] = {}
            for n, network in enumerate(NETWORKS):
                plugs[network] = f"{_bridge(network)}{number}"
                ip("link", "add", plugs[network], "type", "veth", "peer", "name", network, "netns", space)
                ip("link", "set", plugs[network], "master", _bridge(network), "up")
                ip("-n", space, "link", "set", network, "address", _card(n, number), "up")
                ip("-n", space, "address", "add", f"{_address(n, number)}/24", "dev", network)
                # Nobody asks who is there: a line that is cut stays silent even when a new connection is wanted.
                ip("-n", space, "neighbour", "replace", homes[network], "lladdr", _card(n, 1), "dev", network)
                ip(
                    "neighbour",
                    "replace",
                    _address(n, number),
                    "lladdr",
                    _card(n, number),
                    "dev",
                    _bridge(network),
                )
            hosts.append(Host(space, plugs))
        yield Country(homes, hosts)


@contextlib.asynccontextmanager
async def standing_across(servers: Servers, land: Country) -> AsyncIterator[Stage]:
    """A stage whose product has one worker at home and one on each host, with the town known everywhere."""
    async with contextlib.AsyncExitStack() as held:
        receiver = await held.enter_async_context(listening_receiver())
        database, redis, destinations = [
            await held.enter_async_context(Gate(address, port))
            for address, port in (
                (land.home["servers"], servers.postgres.port),
                (land.home["servers"], servers.valkey.port),
                (land.home["destinations"], receiver.port),
            )
        ]
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="hookyard-hosts-")))
        product = Product(
            folder,
            DATABASE_URL=_through(servers.postgres.url, servers.postgres.port, database, land),
            REDIS_URL=_through(servers.redis_url, servers.valkey.port, redis, land),
            MASTER_KEY=base64.b64encode(secrets.token_bytes(32)).decode(),
            ALLOW_NETWORKS="10.0.0.0/8",
            LEASE_SECONDS=f"{LEASE_SECONDS:g}",
            LOG_FORMAT="json",
        )
        held.push_async_callback(asyncio.to_thread, product.destroy)
        edge = await held.enter_async_context(Line(product.ingest_port))
        await asyncio.to_thread(product.start)
        for host in land.hosts:
            held.enter_context(_working(product, host))
        desk = await held.enter_async_context(opened(folder, product.environment))
        for argv in commands(f"http://{land.home['destinations']}:{destinations.port}"):
            deed = await desk.do(*argv)
            assert deed.is_done, deed
        await asyncio.to_thread(_until_shared, servers.url_of("hookyard"), 1 + len(land.hosts))
        await asyncio.sleep(KNOWN_SECONDS)
        yield Stage(servers, receiver, database, redis, edge, destinations, product, desk)


@contextlib.contextmanager
def _working(product: Product, host: Host) -> Iterator[None]:
    """A worker runs on the host."""
    with (product.folder / f"{host.name}.log").open("wb") as output:
        worker = subprocess.Popen(
            ["ip", "netns", "exec", host.name, HOOKYARD, "worker"],
            cwd=product.folder,
            env=product.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield
    finally:
        worker.kill()
        worker.wait()


def _until_shared(url: str, workers: int) -> None:
    """Each worker owns something."""
    with psycopg.connect(url, autocommit=True) as connection:

        def owners() -> int:
            row = connection.execute("SELECT count(DISTINCT owner) FROM shards").fetchone()
            return int(row[0]) if row else 0

        until(lambda: owners() == workers, 60, lambda: f"{owners()} of {workers} workers own something")


def ip(*words: str) -> None:
    """One command of iproute2. Raises: NotAllowed."""
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NotAllowed("there is no `ip` here, of iproute2") from None
    if done.returncode:
        raise NotAllowed(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _add(built: contextlib.ExitStack, kind: str, name: str, *how: str) -> None:
    ip(kind, "add", name, *how)
    built.callback(subprocess.run, ["ip", kind, "delete", name], check=False, capture_output=True)


def _bridge(network: Network) -> str:
    return f"{MARK}{network[0]}"


def _address(network: int, host: int) -> str:
    """Of a range that depends on this process, so that two runs on a machine do not meet."""
    return f"10.{77 + network}.{os.getpid() % 256}.{host}"


def _card(network: int, host: int) -> str:
    return f"02:00:00:00:{network:02x}:{host:02x}"


def _through(url: str, port: int, gate: Gate, land: Country) -> str:
    return url.replace(f"127.0.0.1:{port}/", f"{land.home['servers']}:{gate.port}/")
