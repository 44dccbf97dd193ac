"""The ops role: health and metrics of the whole system for everybody; the pages and the API for who has a token."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from domain.problems import Problem
from ops.access import METRICS, Door, Keys, problem_response
from ops.api import app as api
from ops.api.means import Means
from ops.background import Background
from ops.dashboard import app as dashboard
from ops.desk import Desk
from ops.login import Login
from ops.settings import Settings
from ops.side import serve, tcp_socket
from ops.watch import STATEMENT_SECONDS, Watch

if TYPE_CHECKING:
    from starlette.types import ASGIApp


@dataclass(frozen=True, slots=True)
class OpsConfig:
    """What an ops process is told. `fd` is an inherited listening socket and then stands for `host` and `port`.

    Under a supervisor `metrics_dir` holds the metric files of all roles, and `health_sockets` says where each slot
    answers. `admin_token` lets in beside the tokens in the database.
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
    settings: Settings = field(default_factory=Settings.model_construct, repr=False)


class Ops:
    """The answers of one ops process."""

    def __init__(self, config: OpsConfig) -> None:
        self._watch = Watch(config.database_url, config.settings.redis_url, config.metrics_dir, config.health_sockets)
        self._metrics_dir = config.metrics_dir
        self._desk = Desk(config.database_url, "hookyard ops people", STATEMENT_SECONDS)
        self._background = Background(config.database_url)
        self._keys = Keys(self._desk, config.admin_token, config.metrics_token)
        self._means = Means(self._desk, self._background, self._watch, config.settings)

    def app(self) -> ASGIApp:
        """The whole of it, behind its door."""
        routes = [
            Route("/health/live", self.live),
            Route("/health/ready", self.ready),
            Route(METRICS, self.metrics),
            *Login(self._keys).routes(),
            Mount(api.PREFIX, api.make(self._means)),
            *dashboard.routes(self._means, self._metrics_dir),
        ]
        return Door(Starlette(routes=routes, exception_handlers={HTTPException: _refused}), self._keys)

    async def live(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """This process answers."""
        return JSONResponse({"status": "live"})

    async def ready(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """The whole system under a supervisor; alone, whether the database is there."""
        told = await self._watch.ready()
        return JSONResponse(told, 503 if told["status"] == "unready" else 200)

    async def metrics(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """Everything there is to scrape, with or without the database."""
        return Response(await self._watch.metrics(), media_type=CONTENT_TYPE_LATEST)

    def close(self) -> None:
        """The connections that are not in use are gone."""
        self._watch.close()
        self._desk.close()
        self._background.close()


async def run(config: OpsConfig, stop: asyncio.Event) -> None:
    """Serves until `stop`, then lets what has begun come to its end. Raises: CannotStart."""
    ops = Ops(config)
    with _listening(config) as listening:
        try:
            await serve(ops.app(), [listening], stop, config.drain_seconds)
        finally:
            ops.close()


async def _refused(request: Request, refused: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    assert isinstance(refused, HTTPException)  # noqa: S101 - it is registered for nothing else
    reason = "method_not_allowed" if refused.status_code == 405 else "not_found"
    headers = dict(refused.headers or {})
    return problem_response(Problem(refused.status_code, reason, "There is nothing here."), headers)


def _listening(config: OpsConfig) -> socket.socket:
    if config.fd is not None:
        return socket.socket(fileno=config.fd)
    return tcp_socket("HOOKYARD_OPS_BIND", config.host, config.port)
