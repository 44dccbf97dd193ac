"""`Idempotency-Key`: a POST that is sent again under its key does nothing again, and gets the answer it got.

Only what was done is kept: a request that was refused may be sent again under the same key.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.responses import Response

from domain.problems import Problem
from ops.access import Caller, bearer, cookie_of, problem_response
from ops.api.bodies import given, read
from ops.api.means import Means
from storage.answers import Key
from storage.errors import StorageUnavailable

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "idempotency-key"
ALLOWED = re.compile("[!-~]{1,200}")
KEPT = (b"content-type", b"location", b"etag")
OTHER = Problem(422, "key_reused", "This Idempotency-Key was used for another request.")
UNANSWERED = Problem(409, "in_progress", "The request under this Idempotency-Key goes on, or was cut off: look first.")
UNAVAILABLE = Problem(503, "unavailable", "The database does not answer.")
NO_KEY = Problem(422, "invalid", "Idempotency-Key: 1 to 200 printable ASCII characters without blanks are allowed.")


class Once:
    """Stands before the routes of the API."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        headers = Headers(scope=scope)
        text = headers.get(HEADER)
        if scope["method"] != "POST" or text is None:
            await self._app(scope, receive, send)
            return
        if not ALLOWED.fullmatch(text):
            await problem_response(NO_KEY)(scope, receive, send)
            return
        try:
            await self._answer(scope, headers, await read(receive) or b"", text, send)
        except StorageUnavailable:
            await problem_response(UNAVAILABLE, {"retry-after": "1"})(scope, receive, send)

    async def _answer(self, scope: Scope, headers: Headers, body: bytes, text: str, send: Send) -> None:
        means: Means = scope["app"].state.means
        who: Caller = scope["state"]["caller"]
        key = Key(who.name, bearer(headers) or cookie_of(headers), text)
        asked = hashlib.sha256(b"\0".join((scope["path"].encode(), scope["query_string"], body))).digest()
        taken = await means.desk.run(lambda connection: key.take(connection, asked))
        if isinstance(taken, bytes):
            await _thawed(taken)(scope, given(b""), send)
        elif taken != "new":
            await problem_response(OTHER if taken == "other" else UNANSWERED)(scope, given(b""), send)
        else:
            await self._first(scope, body, key, means, send)

    async def _first(self, scope: Scope, body: bytes, key: Key, means: Means, send: Send) -> None:
        """Its answer is kept before anybody sees it."""
        messages: list[Message] = []

        async def collect(message: Message) -> None:
            messages.append(message)

        try:
            await self._app(scope, given(body), collect)
        finally:
            done = bool(messages) and messages[0]["status"] < 300
            frozen = _frozen(messages) if done else b""
            await means.desk.run(lambda connection: key.keep(connection, frozen) if done else key.forget(connection))
        for message in messages:
            await send(message)


def _frozen(messages: list[Message]) -> bytes:
    start = messages[0]
    told: dict[str, Any] = {
        "status": start["status"],
        "headers": [(n.decode("latin-1"), v.decode("latin-1")) for n, v in start["headers"] if n.lower() in KEPT],
        "body": base64.b64encode(b"".join(m.get("body", b"") for m in messages[1:])).decode(),
    }
    return json.dumps(told).encode()


def _thawed(frozen: bytes) -> Response:
    told = json.loads(frozen)
    headers = dict(told["headers"]) | {"idempotency-replayed": "true"}
    return Response(base64.b64decode(told["body"]), told["status"], headers)
