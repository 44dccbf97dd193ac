"""Who may come in at the ops port: holders of a token, by `Authorization` or by a browser's session.

What is open to all is named here, and everything else is closed. A browser sends its cookie by itself, so a request
that changes something also has to know the session's CSRF token. Roles are asked for by what is behind the door.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from domain.problems import MEDIA_TYPE, Problem
from ops.desk import Desk
from storage import sessions, tokens
from storage.errors import BadData, StorageUnavailable
from storage.sessions import OF_SETTINGS
from storage.tokens import Holder, Role

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


COOKIE = "hookyard-session"
CSRF_HEADER, CSRF_FIELD = "x-csrf-token", "csrf"
METRICS, LOGIN = "/metrics", "/login"
OPEN = frozenset({"/health/live", "/health/ready", LOGIN})
ASSETS = "/static/"  # scripts, styles and icons of the pages: the same for everybody
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
FORM = "application/x-www-form-urlencoded"
FORM_BYTES, FORM_FIELDS = 64 << 10, 1_000
NOTHING_ELSE = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `csrf` is there where a session let them in, and then every change has to bring it."""

    name: str
    role: Role
    csrf: str | None = field(default=None, repr=False)

    def may(self, needed: Role) -> bool:
        """Whether what needs this role is allowed."""
        return tokens.may(self.role, needed)


def caller(request: Request) -> Caller:
    """Who asks: the door has seen to it that somebody does."""
    found: Caller = request.state.caller
    return found


def problem_response(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """A refusal as an answer."""
    return Response(problem.document(), problem.status, headers, media_type=MEDIA_TYPE)


class Keys:
    """Tells who holds a token or a session."""

    def __init__(self, desk: Desk, admin_token: str | None, metrics_token: str | None) -> None:
        self._desk = desk
        self._admin = admin_token or None
        self._metrics = metrics_token or None

    @property
    def metrics_are_open(self) -> bool:
        """Whether everybody may scrape."""
        return self._metrics is None

    def is_scraper(self, token: str) -> bool:
        """Whether this is the token of HOOKYARD_METRICS_TOKEN."""
        return _same(token, self._metrics)

    async def of_token(self, token: str) -> Holder | None:
        """Who holds this token. The one of the settings is known without the database. Raises: StorageUnavailable."""
        if _same(token, self._admin):
            return OF_SETTINGS
        if not token.startswith(tokens.PREFIX):
            return None
        return await self._desk.run(lambda connection: tokens.holder(connection, token))

    async def of_session(self, cookie: str) -> Holder | None:
        """Whose session this is. Raises: StorageUnavailable."""
        return await self._desk.run(lambda connection: sessions.find(connection, cookie, self._admin))

    async def open_session(self, token: str) -> str | None:
        """The cookie's value of a new session; None for a token that lets nobody in. Raises: StorageUnavailable."""
        holder = await self.of_token(token)
        if holder is None:
            return None
        return await self._desk.run(lambda connection: sessions.open_(connection, holder, token))

    async def close_session(self, cookie: str) -> None:
        """The session is over. Raises: StorageUnavailable."""
        await self._desk.run(lambda connection: sessions.close(connection, cookie))


class Door:
    """Lets through what is open to all and who may come in; tells nobody else what is behind it."""

    def __init__(self, inner: ASGIApp, keys: Keys) -> None:
        self._inner = inner
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        try:
            refusal, receive = await self._judge(scope, receive)
        except (StorageUnavailable, BadData):
            refusal = problem_response(Problem(503, "unavailable", "The database does not answer."))

        async def hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                harden(MutableHeaders(scope=message), scope["path"])
            await send(message)

        await (refusal or self._inner)(scope, receive, hardened)

    async def _judge(self, scope: Scope, receive: Receive) -> tuple[Response | None, Receive]:
        """The refusal if there is one, and how to receive the body from here on. Who asks is noted in the scope."""
        path, headers = scope["path"], Headers(scope=scope)
        state = scope.setdefault("state", {})
        if path in OPEN or path.startswith(ASSETS) or (path == METRICS and self._keys.metrics_are_open):
            return None, receive
        token, cookie = bearer(headers), cookie_of(headers)
        if path == METRICS and self._keys.is_scraper(token):
            return None, receive
        if token:
            holder, csrf = await self._keys.of_token(token), None
        else:
            holder, csrf = await self._keys.of_session(cookie) if cookie else None, csrf_of(cookie)
        if holder is None:
            return _unauthorized(scope, headers), receive
        state["caller"] = Caller(holder.name, holder.role, csrf)
        if csrf is None or scope["method"] in SAFE:
            return None, receive
        given, receive = await _csrf_given(headers, receive)
        if is_cross_site(headers) or not hmac.compare_digest(given.encode(), csrf.encode()):
            return problem_response(Problem(403, "csrf", "This needs the session's CSRF token.")), receive
        return None, receive


def harden(headers: MutableHeaders, path: str) -> None:
    """Every answer says that nothing may be kept, guessed, framed or loaded from elsewhere, unless it says more."""
    if not path.startswith(ASSETS):
        headers["cache-control"] = "no-store"
    headers["x-content-type-options"] = "nosniff"
    headers["referrer-policy"] = "no-referrer"
    headers["cross-origin-opener-policy"] = "same-origin"
    headers["cross-origin-resource-policy"] = "same-origin"
    headers.setdefault("content-security-policy", NOTHING_ELSE)


def bearer(headers: Headers) -> str:
    """The token of `Authorization: Bearer …`, as UTF-8; empty without one."""
    scheme, _, rest = headers.get("authorization", "").strip().partition(" ")
    return rest.strip().encode("latin-1").decode("utf-8", "surrogateescape") if scheme.lower() == "bearer" else ""


def cookie_of(headers: Headers) -> str:
    """The session's cookie; empty without one."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def csrf_of(cookie: str) -> str:
    """The CSRF token of a session: whoever knows only this cannot make the cookie from it."""
    return hmac.new(cookie.encode(), b"csrf", hashlib.sha256).hexdigest()


def is_cross_site(headers: Headers) -> bool:
    """Whether a browser says that another site's page asks."""
    return headers.get("sec-fetch-site", "none") not in ("same-origin", "none")


async def read_form(receive: Receive) -> tuple[dict[str, str], bytes]:
    """The fields of a form, the last of each name, and its bytes. What is too large for a form of ours has none."""
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False) and len(body) <= FORM_BYTES
    if len(body) > FORM_BYTES:
        return {}, b""
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=FORM_FIELDS)
    except ValueError:
        return {}, b""
    return {name: values[-1] for name, values in fields.items()}, bytes(body)


async def _csrf_given(headers: Headers, receive: Receive) -> tuple[str, Receive]:
    """The CSRF token that came along, in a header or in a form's field; a form is read for it, and handed on."""
    given = headers.get(CSRF_HEADER, "")
    if given or not headers.get("content-type", "").startswith(FORM):
        return given, receive
    fields, body = await read_form(receive)
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return fields.get(CSRF_FIELD, ""), again


def _same(given: str, wanted: str | None) -> bool:
    return wanted is not None and hmac.compare_digest(
        given.encode("utf-8", "surrogateescape"), wanted.encode("utf-8", "surrogateescape")
    )


def _unauthorized(scope: Scope, headers: Headers) -> Response:
    """A browser that opens a page is shown where to log in."""
    if scope["method"] in ("GET", "HEAD") and "text/html" in headers.get("accept", "") and not _is_api(scope["path"]):
        wanted = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
        return RedirectResponse(LOGIN + ("" if wanted == "/" else f"?next={quote(wanted, safe='/')}"), 303)
    refused = Problem(401, "unauthorized", "This needs a token.")
    return problem_response(refused, {"www-authenticate": 'Bearer realm="hookyard"'})


def _is_api(path: str) -> bool:
    return path.startswith("/api/")
