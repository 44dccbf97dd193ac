"""From a URL's place to a connection: resolve, judge every address, dial one that was judged, then TLS by its name.

The address guard lives here because this is the only place where addresses and connections meet: what was judged is
what is dialled, and the name is used for nothing but `Host`, SNI and the certificate.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

from delivery.connection import Connection
from delivery.exchange import Outcome
from delivery.resolve import NoThread, Resolver, Unresolvable
from domain.addresses import Address, Network, Verdict, judge
from domain.urls import Target

CONNECT_SECONDS = 10.0  # TCP and TLS, at most; the destination's own timeout if that is shorter
ADDRESSES_TRIED = 3


class Unreachable(Exception):
    """No connection: the outcome says of which kind, the message why, without addresses."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


def trusting(extra_authorities: str | None = None) -> ssl.SSLContext:
    """A TLS context that verifies always: the system's authorities (certifi's where it has none) and the given PEM."""
    context = ssl.create_default_context()
    if not _has_authorities():
        import certifi  # only where the system has none: a slim container

        context.load_verify_locations(certifi.where())
    if extra_authorities is not None:
        context.load_verify_locations(cadata=extra_authorities)
    return context


class Dialler:
    """Makes connections for one event loop."""

    __slots__ = ("_allowed", "_resolver", "_tls")

    def __init__(self, allowed: Sequence[Network], resolver: Resolver, tls: ssl.SSLContext) -> None:
        self._allowed = tuple(allowed)
        self._resolver = resolver
        self._tls = tls

    async def dial(self, target: Target, seconds: float) -> Connection:
        """A fresh connection within `seconds`. Raises: Unreachable."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        try:
            addresses = await self._judged(target, seconds)
            async with asyncio.timeout_at(min(deadline, loop.time() + CONNECT_SECONDS)):
                connected = await _connect_any(addresses, target.port, min(CONNECT_SECONDS, seconds))
                return await self._speak(connected, target)
        except TimeoutError as problem:
            raise Unreachable(Outcome.TIMEOUT, f"no {_layers(target)} connection in time") from problem

    async def _judged(self, target: Target, seconds: float) -> Sequence[Address]:
        """Every address of the target, all of them fit to be called. Raises: Unreachable, TimeoutError."""
        try:
            addresses = (target.address,) if target.address else await self._resolver.addresses(target.host, seconds)
        except NoThread as problem:
            raise Unreachable(Outcome.WITHDRAWN, str(problem)) from problem
        except Unresolvable as problem:
            raise Unreachable(Outcome.DNS_ERROR, str(problem)) from problem
        if any(judge(address, self._allowed) is Verdict.FORBIDDEN for address in addresses):
            raise Unreachable(Outcome.BLOCKED, "the host leads to an address that is not public and not allowed")
        return addresses

    async def _speak(self, connected: socket.socket, target: Target) -> Connection:
        """The connection, with TLS where the URL asks for it. Raises: Unreachable."""
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(loop),
                sock=connected,
                ssl=self._tls if target.scheme == "https" else None,
                server_hostname=target.host.removesuffix(".") if target.scheme == "https" else None,
            )
        except ssl.SSLCertVerificationError as problem:
            reason = f"TLS: the certificate was refused: {problem.verify_message}"
            raise Unreachable(Outcome.TLS_ERROR, reason) from problem
        except ssl.SSLError as problem:
            reason = (problem.reason or "handshake failed").replace("_", " ").lower()
            raise Unreachable(Outcome.TLS_ERROR, f"TLS: {reason}") from problem
        except OSError as problem:
            outcome = Outcome.TLS_ERROR if target.scheme == "https" else Outcome.CONNECT_ERROR
            raise Unreachable(outcome, f"{_layers(target)}: {_reason(problem)}") from problem
        return connection


async def _connect_any(addresses: Sequence[Address], port: int, seconds: float) -> socket.socket:
    """A TCP connection to the first address that takes one; a silent one leaves the others their share of the time.

    Raises: Unreachable, or TimeoutError by the caller's own limit.
    """
    *others, last = addresses[:ADDRESSES_TRIED]
    for address in others:
        with contextlib.suppress(OSError):  # TimeoutError is one
            async with asyncio.timeout(seconds / (len(others) + 1)):
                return await _connect(address, port)
    try:
        return await _connect(last, port)
    except OSError as problem:
        raise Unreachable(Outcome.CONNECT_ERROR, _reason(problem)) from problem


async def _connect(address: Address, port: int) -> socket.socket:
    """A TCP connection to exactly this address. Raises: OSError."""
    dialled = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    try:
        dialled.setblocking(False)
        with contextlib.suppress(OSError):
            dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(dialled, (str(address), port))
    except BaseException:
        dialled.close()
        raise
    return dialled


def _reason(problem: OSError) -> str:
    """Why, in the system's words alone: the text of an OSError may name addresses."""
    return os.strerror(problem.errno).lower() if problem.errno else "connection lost"


def _layers(target: Target) -> str:
    return "TLS" if target.scheme == "https" else "TCP"


def _has_authorities() -> bool:
    paths = ssl.get_default_verify_paths()
    folder = Path(paths.capath or "/nonexistent")
    return bool(paths.cafile) or (folder.is_dir() and any(folder.iterdir()))
