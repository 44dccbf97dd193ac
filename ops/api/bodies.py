"""Bodies that are sent to the API: read whole, and no further than they may reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain.problems import Problem
from ops.access import problem_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_BYTES = 1 << 20
TOO_LARGE = Problem(413, "too_large", f"The body is too large: at most {BODY_BYTES} bytes are allowed.")


class Bounded:
    """Stands before the routes of the API."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        body = await read(receive)
        answer = self._app if body is not None else problem_response(TOO_LARGE)
        await answer(scope, given(body or b""), send)


async def read(receive: Receive) -> bytes | None:
    """The body; None for one that is too large."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def given(body: bytes) -> Receive:
    """How a body is received that was read already."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
