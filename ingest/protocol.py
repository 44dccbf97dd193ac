"""One connection, with the bounds that uvicorn leaves to others: on the head, on slowness, on what surrounds a body.

uvicorn's own protocol does the HTTP. This one counts what comes in, refuses in `application/problem+json`, and lets a
sweep (once a second, over all connections) end what takes too long: no timer per request.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from domain.problems import Problem
from ingest.limits import Limits
from ingest.replies import CLOSE, refusal

FRAMING = 8  # bytes of chunk framing that may come with each byte of body: six frame a chunk of one byte
MALFORMED = Problem(400, "malformed", "This is no valid HTTP/1.1 request.")
HEAD_TOO_LARGE = Problem(431, "head_too_large", "The request line and headers are too large.")
TOO_SLOW = Problem(408, "too_slow", "The request takes too long to come in.")
TOO_MANY = Problem(503, "overloaded", "Too many connections.")


class _HeadTooLarge(Exception):
    """Ends the parser's work on this connection."""


class EdgeProtocol(HttpToolsProtocol):
    """A connection of the public edge."""

    def __init__(self, *args: Any, limits: Limits, on_refused: Callable[[str], None], **named: Any) -> None:
        super().__init__(*args, **named)
        self._limits, self._on_refused = limits, on_refused
        self._since: float | None = None  # when the message now coming in began; None between messages
        self._running: RequestResponseCycle | None = None  # with the application
        self._in_body = False
        self._head_bytes = 0
        self._raw_bytes = 0  # of this message, as they came
        self._body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection is open; one too many is told so and closed."""
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) > self._limits.connections:
            self._give_up(TOO_MANY)

    def data_received(self, data: bytes) -> None:
        """The bytes are parsed; a head or a body's framing out of proportion ends the connection."""
        if self._since is None:
            self._since = self.loop.time()
        self._raw_bytes += len(data)
        super().data_received(data)
        if self._raw_bytes > 4 * self._limits.head_bytes + FRAMING * self._body_bytes:
            self._give_up(MALFORMED if self._in_body else HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        """Another message begins."""
        super().on_message_begin()
        self._since = self.loop.time()
        self._head_bytes = self._body_bytes = 0
        self._in_body = False

    def on_url(self, url: bytes) -> None:
        """A piece of the request target."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; a trailer field is dropped (RFC 9110 section 6.5.1), or it could pass for a verified header."""
        self._count_head(len(name) + len(value))
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The request goes to the application."""
        super().on_headers_complete()
        self._in_body = True
        self._since = self.loop.time()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The message is in."""
        self._since, self._in_body, self._raw_bytes = None, False, 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words are not used
        """The parser has given up on this connection."""
        self._give_up(HEAD_TOO_LARGE if self._head_bytes > self._limits.head_bytes else MALFORMED)

    def _unsupported_upgrade_warning(self) -> None:
        """An upgrade is never taken (RFC 9110 section 7.8). The parser is lost behind it: this request is the last."""
        self.cycle.keep_alive = False

    def enforce(self, now: float) -> None:
        """A message that takes too long to come in is refused, a connection that sends none is closed."""
        if self._since is None or self._storing():
            return
        waited = now - self._since
        if not self._in_body:
            late = waited > self._limits.head_seconds
        else:
            late = waited > self._limits.body_seconds and self._body_bytes < waited * self._limits.body_rate
        if late:
            self._give_up(TOO_SLOW)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; nobody writes to it any more, also where a later request waits behind this one."""
        if self._running is not None:
            self._running.disconnected = True
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """The request is handed to the application."""
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _storing(self) -> bool:
        """Whether a request that has come in whole is yet to be answered."""
        running = self._running
        return running is not None and not running.response_complete and not running.more_body

    def _give_up(self, problem: Problem) -> None:
        """The connection ends: with the problem if it is of the request coming in, else after the answer due."""
        if self.transport.is_closing():
            return
        running = self._running
        if running is not None and self._storing():
            # Its own answer is the last thing said here: another one would be taken for it.
            running.keep_alive = False
            self.flow.pause_reading()
            return
        uploading = running is not None and not running.response_complete
        started = running is not None and uploading and running.response_started
        if not started and (self._raw_bytes or problem is TOO_MANY):
            self._on_refused(problem.reason)
            self.transport.write(_raw(problem))
        self.transport.close()
        if running is not None and uploading:
            running.disconnected = True
            running.message_event.set()

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.head_bytes:
            raise _HeadTooLarge


def _raw(problem: Problem) -> bytes:
    reply = refusal(problem, 1 if problem.status == 503 else 0)
    lines = [name + b": " + value + b"\r\n" for name, value in [*reply.headers, CLOSE]]
    return b"".join([STATUS_LINE[problem.status], *lines, b"\r\n", reply.body])
