"""How a page is made: its facts in a template, behind a strict policy; and what a refusal looks like to people."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from domain.problems import Problem
from domain.version import VERSION
from ops.access import caller
from ops.api.app import REFUSALS
from ops.api.means import Means, Refused
from ops.asking import Asked
from ops.dashboard import words
from ops.dashboard.pace import Flow, Paces, flow
from ops.slotfiles import collect

HERE = Path(__file__).parent
STATIC = HERE / "static"
FIGURES_SECONDS = 2.0  # adding up the metric files of all roles takes a few hundredths
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
FILTERS = ("duration", "number", "rate", "slope", "size", "moment", "ago", "why", "words")
KNOWN = tuple(kind for kind, _, _ in REFUSALS)

Make = Callable[["Front", Request], Awaitable[Response]]


class Given(dict[str, str]):
    """The fields of a query; those that were not given are empty."""

    def __missing__(self, name: str) -> str:
        return ""


@dataclass(frozen=True)
class Front:
    """What pages are made with."""

    means: Means
    flow: Asked[Flow]
    paces: Paces = field(default_factory=lambda: Paces(time.monotonic))
    environment: Environment = field(default_factory=lambda: _environment())

    def page(self, request: Request, template: str, status: int = 200, **facts: Any) -> Response:
        """The page for who asks."""
        given = {"who": caller(request), "path": request.url.path, "query": Given(request.query_params)} | facts
        text = self.environment.get_template(template).render(given)
        return HTMLResponse(text, status, {"content-security-policy": POLICY})

    def refused(self, request: Request, problem: Problem) -> Response:
        """A refusal as a page."""
        return self.page(request, "refused.html", problem.status, problem=problem)


def front(means: Means, metrics_dir: Path | None) -> Front:
    """One ops process's front."""

    def look() -> Flow:
        return flow([] if metrics_dir is None else list(collect(metrics_dir)))

    return Front(means, Asked(look, FIGURES_SECONDS))


def shown(front: Front, make: Make) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of a page: what the API would refuse is told in words."""

    async def endpoint(request: Request) -> Response:
        try:
            return await make(front, request)
        except Refused as refused:
            return front.refused(request, refused.problem)
        except KNOWN as refused:
            status, reason = next((status, reason) for kind, status, reason in REFUSALS if isinstance(refused, kind))
            return front.refused(request, Problem(status, reason, " ".join(str(refused).split())))

    return endpoint


def asked(request: Request, *names: str) -> dict[str, str | None]:
    """Of the query those fields that were filled in; None for the others."""
    return {name: request.query_params.get(name, "").strip() or None for name in names}


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {name: getattr(words, name) for name in FILTERS}
    environment.globals |= {"version": VERSION, "asset": _asset}
    return environment


def _asset(name: str) -> str:
    """Where a script or a style is; another version of the product has another address for it."""
    return f"/static/{name}?v={VERSION}"
