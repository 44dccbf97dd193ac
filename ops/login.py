"""Logging in and out with a browser. Guessing is slowed down, per address; what was wrong is not said."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from html import escape
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ops.access import COOKIE, LOGIN, Keys, cookie_of, is_cross_site, read_form
from storage.errors import BadData, StorageUnavailable
from storage.sessions import LIFE

FREE = 5  # wrong tokens before the first wait: typing errors
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 2.0, 300.0
ADDRESSES = 10_000  # remembered at most

POLICY = "default-src 'none'; style-src 'nonce-{nonce}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
STYLE = (
    ":root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;display:grid;place-items:center;"
    "min-height:90vh;margin:0 1rem}form{display:grid;gap:.75rem;width:100%;max-width:22rem}"
    "input,button{font:inherit;padding:.5rem .75rem}p{margin:0}"
)
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Log in · Hookyard</title>
<meta name="viewport" content="width=device-width,initial-scale=1"><style nonce="{nonce}">{style}</style></head>
<body><form method="post" action="{action}"><h1>Hookyard</h1>{told}
<input type="hidden" name="next" value="{next}"><label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Log in</button></form></body></html>"""


class Throttle:
    """Who guesses has to wait: after the first few, each wrong token doubles the wait of its address.

    A guess counts when it begins, so that many at once are no way round. Times are seconds of a steady clock.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[str, tuple[int, float]] = OrderedDict()  # guesses, and when the next one is allowed

    def guess(self, address: str, now: float) -> float:
        """Zero where a guess is allowed, and it counts; else the seconds to wait."""
        guesses, allowed_at = self._seen.get(address, (0, 0.0))
        if now < allowed_at:
            return allowed_at - now
        if now - allowed_at > LONGEST_WAIT_SECONDS:
            guesses = 0
        guesses += 1
        wait = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(guesses - FREE, 20)) if guesses >= FREE else 0.0
        self._seen[address] = guesses, now + wait
        self._seen.move_to_end(address)
        if len(self._seen) > ADDRESSES:
            self._seen.popitem(last=False)
        return 0.0

    def forget(self, address: str) -> None:
        """It was no guess."""
        self._seen.pop(address, None)


class Login:
    """The answers of `/login` and `/logout`."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._throttle = Throttle()

    def routes(self) -> list[Route]:
        """Where they are."""
        return [
            Route(LOGIN, self.ask),
            Route(LOGIN, self.log_in, methods=["POST"]),
            Route("/logout", self.log_out, methods=["POST"]),
        ]

    async def ask(self, request: Request) -> Response:
        """The page with the form."""
        return _page(200, request.query_params.get("next", "/"))

    async def log_in(self, request: Request) -> Response:
        """A session for who knows a token, and the page that was wanted."""
        fields, _ = await read_form(request.receive)
        wanted = fields.get("next", "/")
        if is_cross_site(request.headers):
            return _page(403, wanted, "Log in on this page.")
        address = whence(request.client.host if request.client else "")
        wait = self._throttle.guess(address, time.monotonic())
        if wait:
            seconds = str(int(wait) + 1)
            return _page(429, wanted, f"Too many wrong tokens: wait {seconds} s.", {"retry-after": seconds})
        try:
            value = await self._keys.open_session(fields.get("token", "").strip())
        except (StorageUnavailable, BadData):
            self._throttle.forget(address)
            return _page(503, wanted, "The database does not answer.")
        if value is None:
            return _page(401, wanted, "This token lets nobody in.")
        self._throttle.forget(address)
        answer = RedirectResponse(local_path(wanted), 303)
        _set_cookie(answer, request.headers, value, int(LIFE.total_seconds()))
        return answer

    async def log_out(self, request: Request) -> Response:
        """The session is over, here and in the database."""
        await self._keys.close_session(cookie_of(request.headers))
        answer = RedirectResponse(LOGIN, 303)
        _set_cookie(answer, request.headers, "", 0)
        return answer


def whence(address: str) -> str:
    """Whose guess it is: of IPv6 the network, because who has one address there has them all."""
    try:
        known = ip_address(address)
    except ValueError:
        return address
    return str(ip_network((known, 64), strict=False)) if known.version == 6 else address


def local_path(wanted: str) -> str:
    """The path that was wanted, if it is one of ours; never another site."""
    parts = urlsplit(wanted)
    is_ours = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and not parts.netloc and not parts.scheme
    return wanted if is_ours and wanted.isprintable() and "\\" not in wanted else "/"


def _set_cookie(answer: Response, headers: Headers, value: str, seconds: int) -> None:
    """Not for scripts, not for other sites; and where TLS ends at a proxy that says so, never without TLS again."""
    secure = headers.get("x-forwarded-proto", "") == "https"
    answer.set_cookie(COOKIE, value, max_age=seconds, httponly=True, samesite="strict", secure=secure)


def _page(status: int, wanted: str, told: str = "", headers: dict[str, str] | None = None) -> Response:
    nonce = secrets.token_urlsafe(16)
    message = f'<p role="alert">{escape(told)}</p>' if told else ""
    text = PAGE.format(nonce=nonce, style=STYLE, action=LOGIN, told=message, next=escape(local_path(wanted)))
    policy = {"content-security-policy": POLICY.format(nonce=nonce)}
    return HTMLResponse(text, status, policy | (headers or {}))
