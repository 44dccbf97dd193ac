"""The application of the API: its routes, its description, and what every answer of it has in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send
from typer import BadParameter

from domain.problems import MEDIA_TYPE
from domain.problems import Problem as Refusal
from domain.version import VERSION
from ops.access import problem_response
from ops.api import audit, bulk, destinations, events, history, partners, subscriptions, system, tokens
from ops.api.bodies import Bounded
from ops.api.means import Means, Refused
from ops.api.once import ALLOWED, Once
from ops.api.shapes import Problem
from ops.cli.send import NotAccepted
from ops.settings import WrongSetting
from storage.errors import BadData, Conflict, Invalid, NotFound, StorageUnavailable
from storage.secrets import CannotOpen

PREFIX = "/api/v1"
REFUSALS = (  # what was raised, and how it is told
    (NotFound, 404, "not_found"),
    (Conflict, 409, "conflict"),
    (Invalid, 422, "invalid"),
    (BadData, 422, "invalid"),
    (StorageUnavailable, 503, "unavailable"),
    (CannotOpen, 503, "cannot_open"),
    (WrongSetting, 503, "wrong_setting"),
    (NotAccepted, 502, "not_accepted"),
    (BadParameter, 422, "invalid"),
)
ABOUT = (
    "What the command line can do, with the same names. Every request carries `Authorization: Bearer TOKEN` "
    "(or a browser's session). Lists come in pages: pass `next` of one as `cursor` of the following. "
    "Everything that is refused is a problem document (RFC 9457) with a `reason` for programs."
)
KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same request again under the same key, within a day, does nothing and gets the same answer.",
    "schema": {"type": "string", "pattern": f"^{ALLOWED.pattern}$"},
}
REFUSED = {
    "description": "Refused; the document says why.",
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def make(means: Means | None = None) -> FastAPI:
    """The application below `/api/v1`, to be mounted behind the door. Without means it can only describe itself."""
    app = FastAPI(
        title="Hookyard",
        version=VERSION,
        description=ABOUT,
        openapi_url="/openapi.json",
        docs_url=None,  # they load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False},
        responses={"4XX": REFUSED, "5XX": REFUSED},
        generate_unique_id_function=lambda route: route.name,
        middleware=[Middleware(HeadAsGet), Middleware(Bounded), Middleware(Once)],
    )
    app.state.means = means
    for noun in (partners, destinations, subscriptions, events, bulk, history, audit, system, tokens):
        app.include_router(noun.router)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_wrong_request)
    app.add_exception_handler(Refused, _on_refused)
    for raised, _, _ in REFUSALS:
        app.add_exception_handler(raised, _on_known)
    app.add_exception_handler(Exception, _on_defect)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    return app


def describe(app: FastAPI) -> dict[str, Any]:
    """The API as OpenAPI 3.1."""
    if not app.openapi_schema:
        told = get_openapi(
            title=app.title,
            version="1",  # of the API; the product's own changes with every release
            description=app.description,
            routes=app.routes,
            servers=[{"url": PREFIX}],
        )
        parts = told.setdefault("components", {})
        parts["schemas"]["Problem"] = Problem.model_json_schema()
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for operations in told["paths"].values():
            if "post" in operations:
                operations["post"].setdefault("parameters", []).append(KEY)
        told["security"] = [{"token": []}]
        app.openapi_schema = told
    return app.openapi_schema


def write(path: Path) -> None:
    """The description is in the file."""
    path.write_text(json.dumps(describe(make()), indent=1, ensure_ascii=False) + "\n")


def _on_refused(request: Request, refused: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    assert isinstance(refused, Refused)  # noqa: S101 - it is registered for nothing else
    return problem_response(refused.problem, refused.headers)


def _on_known(request: Request, refused: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    status, reason = next((status, reason) for kind, status, reason in REFUSALS if isinstance(refused, kind))
    told = " ".join(str(refused).split())
    return problem_response(Refusal(status, reason, told), {"retry-after": "1"} if status == 503 else None)


def _on_wrong_request(request: Request, refused: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    """The first thing that is wrong: where, and what is allowed; never what was sent, it may be a secret."""
    assert isinstance(refused, RequestValidationError)  # noqa: S101 - it is registered for nothing else
    first = refused.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
    return problem_response(Refusal(422, "invalid", f"{where[:100]}: {first['msg']}"))


def _on_http(request: Request, refused: Exception) -> Response:
    assert isinstance(refused, HTTPException)  # noqa: S101 - it is registered for nothing else
    status, headers = refused.status_code, dict(refused.headers or {})
    if status == 405:
        allowed = _allowed(request)
        headers = {"allow": ", ".join(allowed)}
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=headers)
        return problem_response(Refusal(405, "method_not_allowed", f"Allowed: {headers['allow']}."), headers)
    if status == 404:
        return problem_response(Refusal(404, "not_found", "There is nothing here."))
    reasons = {400: "malformed", 413: "too_large", 415: "media_type"}
    return problem_response(Refusal(status, reasons.get(status, "refused"), str(refused.detail)), headers)


def _on_defect(request: Request, raised: Exception) -> Response:
    structlog.get_logger("ops").error("api.defect", path=request.url.path, exc_info=raised)
    return problem_response(Refusal(500, "internal", "This is a defect; the log of the ops role has the details."))


def _allowed(request: Request) -> list[str]:
    """The methods there are for a path."""
    inside = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    for path, operations in describe(request.app)["paths"].items():
        if compile_path(path)[0].fullmatch(inside):
            methods = {method.upper() for method in operations}
            return sorted(methods | {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set()))
    return ["OPTIONS"]


class HeadAsGet:
    """HEAD is answered as GET would be; the server leaves the body out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope.get("method") == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)
