"""What ingest tells about itself: liveness, readiness, and (never on the public edge) metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from domain.problems import MEDIA_TYPE, Problem


@dataclass(frozen=True, slots=True)
class Health:
    """Whether events can be stored, and what is amiss. Without `storing` the process is not ready."""

    storing: bool
    amiss: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """`ready`, `degraded` (events are stored, something else is amiss) or `unready`."""
        if not self.storing:
            return "unready"
        return "degraded" if self.amiss else "ready"


def health_app(health: Callable[[], Health], registry: CollectorRegistry | None = None) -> Starlette:
    """`/health/live`, `/health/ready`, and `/metrics` if given a registry; everything else is a problem document."""

    async def live(request: Request) -> Response:  # noqa: ARG001 - Starlette's signature
        return JSONResponse({"status": "live"})

    async def ready(request: Request) -> Response:  # noqa: ARG001 - Starlette's signature
        now = health()
        body: dict[str, Any] = {"status": now.status, "amiss": list(now.amiss)}
        return JSONResponse(body, 200 if now.storing else 503, None if now.storing else {"retry-after": "1"})

    def metrics(request: Request) -> Response:  # noqa: ARG001 - Starlette's signature
        return Response(generate_latest(registry or CollectorRegistry()), media_type=CONTENT_TYPE_LATEST)

    routes = [Route("/health/live", live), Route("/health/ready", ready)]
    if registry is not None:
        routes.append(Route("/metrics", metrics))
    return Starlette(routes=routes, exception_handlers={HTTPException: _problem})


async def _problem(request: Request, refused: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    assert isinstance(refused, HTTPException)  # noqa: S101 - it is registered for nothing else
    reason = "method_not_allowed" if refused.status_code == 405 else "not_found"
    document = Problem(refused.status_code, reason, "There is nothing here.").document()
    return Response(document, refused.status_code, dict(refused.headers or {}), media_type=MEDIA_TYPE)
