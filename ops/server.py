"""The ops role: health and metrics of the whole system for everybody; the overview and the API for who has a token."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from domain.problems import MEDIA_TYPE, Problem
from ops import pages
from ops.asking import Asked, in_daemon_thread
from ops.cli.backlog import document
from ops.health import ask_all, verdict
from ops.metrics import Standing, of_database, of_processes, read_standing
from ops.side import serve, tcp_socket
from storage.figures import Parkings
from storage.transactions import Store

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEALTH = frozenset({"/health/live", "/health/ready"})
METRICS = "/metrics"
PING_SECONDS = 1.5  # a database that takes longer for nothing is as good as away
STANDING_SECONDS = 5.0  # at 10,000 partners and 2,000,000 parked deliveries it takes 2
STATEMENT_SECONDS = 20.0
POLICY = "default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


@dataclass(frozen=True, slots=True)
class OpsConfig:
    """What an ops process is told. `fd` is an inherited listening socket and then stands for `host` and `port`.

    Under a supervisor `metrics_dir` holds the metric files of all roles, and `health_sockets` says where each slot
    answers. Without an admin token nobody is let in.
    """

    database_url: str = field(repr=False)
    admin_token: str | None = field(default=None, repr=False)
    metrics_token: str | None = field(default=None, repr=False)
    host: str = "127.0.0.1"
    port: int = 8081
    fd: int | None = None
    metrics_dir: Path | None = None
    health_sockets: Mapping[str, Path] = field(default_factory=dict)
    drain_seconds: float = 3.0


class Ops:
    """The answers of one ops process."""

    def __init__(self, config: OpsConfig) -> None:
        self._config = config
        self._pings = Store(config.database_url, "hookyard ops health", STATEMENT_SECONDS)
        self._reads = Store(config.database_url, "hookyard ops", STATEMENT_SECONDS)
        self._database = Asked(self._ping, PING_SECONDS)
        self._standing = Asked(self._read, STANDING_SECONDS)
        self._parkings: list[Parkings] = []
        self._counting = asyncio.Lock()

    def app(self) -> ASGIApp:
        """The whole of it, behind its door."""
        routes = [
            Route("/health/live", self.live),
            Route("/health/ready", self.ready),
            Route(METRICS, self.metrics),
            Route("/", self.overview),
            Route("/api/v1/backlog", self.backlog),
        ]
        inner = Starlette(routes=routes, exception_handlers={HTTPException: _refused})
        return Door(inner, self._config.admin_token, self._config.metrics_token)

    async def live(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """This process answers."""
        return JSONResponse({"status": "live"})

    async def ready(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """The whole system under a supervisor; alone, whether the database is there."""
        up, roles = await asyncio.gather(self._database.answer(), ask_all(self._config.health_sockets))
        told = verdict(up is not None, roles)
        return JSONResponse(told, 503 if told["status"] == "unready" else 200)

    async def metrics(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """Everything there is to scrape, with or without the database."""
        standing, counted = await asyncio.gather(self._standing.answer(), self._counted())
        if standing is not None:
            self._parkings = standing.parkings
        return Response(counted + of_database(standing, self._parkings), media_type=CONTENT_TYPE_LATEST)

    async def overview(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """The page for people."""
        nonce = secrets.token_urlsafe(16)
        standing = await self._standing.answer()
        headers = {"content-security-policy": POLICY.format(nonce=nonce)}
        return HTMLResponse(pages.overview(standing, nonce), 200 if standing is not None else 503, headers)

    async def backlog(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """What `hookyard backlog --json` prints."""
        standing = await self._standing.answer()
        if standing is None:
            return _problem(Problem(503, "unavailable", "The database does not answer."))
        return JSONResponse([document(partner, None) for partner in standing.backlogs])

    def close(self) -> None:
        """The connections that are not in use are gone."""
        self._pings.close()
        self._reads.close()

    async def _counted(self) -> str:
        """What the processes counted; read by one thread at a time, however many scrape at once."""
        async with self._counting:
            return await in_daemon_thread(lambda: of_processes(self._config.metrics_dir))

    def _ping(self) -> bool:
        with self._pings.begin() as connection:
            connection.exec_driver_sql("SELECT 1")
        return True

    def _read(self) -> Standing:
        with self._reads.begin() as connection:
            return read_standing(connection)


class Door:
    """Lets through what is open to all and what carries a token; tells nobody else what is behind it.

    The token comes as `Authorization: Bearer …`; a browser asks its user, and sends it as the password of Basic.
    """

    def __init__(self, inner: ASGIApp, admin_token: str | None, metrics_token: str | None) -> None:
        self._inner = inner
        self._admin = (admin_token,) if admin_token else ()
        self._scraper = (*self._admin, metrics_token) if metrics_token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        app = self._inner if self._may_pass(scope["path"], HTTPConnection(scope)) else _unauthorized()

        async def hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["cache-control"] = "no-store"
                headers["x-content-type-options"] = "nosniff"
                headers["referrer-policy"] = "no-referrer"
                headers.setdefault("content-security-policy", POLICY.partition(";")[0])
            await send(message)

        await app(scope, receive, hardened)

    def _may_pass(self, path: str, connection: HTTPConnection) -> bool:
        if path in HEALTH or (path == METRICS and self._scraper is None):
            return True
        allowed = self._scraper or () if path == METRICS else self._admin
        given = _token(connection.headers.get("authorization", ""))
        return any([hmac.compare_digest(given, token.encode()) for token in allowed])  # noqa: C419 - all are compared


async def run(config: OpsConfig, stop: asyncio.Event) -> None:
    """Serves until `stop`, then lets what has begun come to its end. Raises: CannotStart."""
    ops = Ops(config)
    with _listening(config) as listening:
        try:
            await serve(ops.app(), [listening], stop, config.drain_seconds)
        finally:
            ops.close()


def _token(authorization: str) -> bytes:
    scheme, _, rest = authorization.strip().partition(" ")
    given = rest.strip().encode("latin-1", "replace")
    if scheme.lower() != "basic":
        return given if scheme.lower() == "bearer" else b""
    try:
        return base64.b64decode(given, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _unauthorized() -> Response:
    refused = Problem(401, "unauthorized", "This needs the admin token.")
    challenge = (
        'Bearer realm="hookyard", Basic realm="hookyard: any user, the admin token as password", charset="UTF-8"'
    )
    return _problem(refused, {"www-authenticate": challenge})


def _problem(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    return Response(problem.document(), problem.status, dict(headers or {}), media_type=MEDIA_TYPE)


async def _refused(request: Request, refused: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    assert isinstance(refused, HTTPException)  # noqa: S101 - it is registered for nothing else
    reason = "method_not_allowed" if refused.status_code == 405 else "not_found"
    return _problem(Problem(refused.status_code, reason, "There is nothing here."), refused.headers)


def _listening(config: OpsConfig) -> socket.socket:
    if config.fd is not None:
        return socket.socket(fileno=config.fd)
    return tcp_socket("HOOKYARD_OPS_BIND", config.host, config.port)
