"""One connection, with the bounds that uvicorn leaves to others: on the head, on slowness, on what surrounds a body.

uvicorn's own protocol does the HTTP. This one counts what comes in, refuses in `application/problem+json`, and lets a
sweep (once a second, over all connections) end what takes too long: no timer per request. Where all places are taken, a
newcomer gets that of the sender that has been silent the longest: silence is free, so it must not keep others out.
"""

import asyncio
from collections.abc import Callable, Sized
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from domain.problems import Problem
from ingest.limits import Limits
from ingest.replies import CLOSE, refusal

FRAMING = 8  # bytes of chunk framing that may come with each byte of body: six frame a chunk of one byte
PIPELINED = 64  # requests sent without waiting for the answers before them; each takes a hundred times its bytes here
STALL_SECONDS = 2.0  # what lies between two looks is at most so much of the sender's time: the rest was this process's
UPLOAD_SILENT_SECONDS = 1.0  # an upload heard of since then is not interrupted for a newcomer
MALFORMED = Problem(400, "malformed", "This is no valid HTTP/1.1 request.")
HEAD_TOO_LARGE = Problem(431, "head_too_large", "The request line and headers are too large.")
TOO_SLOW = Problem(408, "too_slow", "The request takes too long to come in.")
TOO_MANY = Problem(503, "overloaded", "Too many connections.")


class _TooMuch(Exception):
    """Ends the parser's work on this connection."""


class _Flow(FlowControl):
    """Reads nothing more while whole requests wait for the answers of those before them."""

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        """Reading goes on, if there is nothing to do before."""
        if not self._pipeline:
            super().resume_reading()


class EdgeProtocol(HttpToolsProtocol):
    """A connection of the public edge."""

    def __init__(
        self,
        *args: Any,
        limits: Limits,
        on_refused: Callable[[str], None],
        awaited: "dict[EdgeProtocol, None]",
        **named: Any,
    ) -> None:
        super().__init__(*args, **named)
        self._limits, self._on_refused = limits, on_refused
        self._awaited = awaited  # all connections from which something is to come, the longest silent first
        self._heard_at = 0.0  # when it took its place there
        self._looked_at = 0.0
        self._seen_bytes = 0  # of the body, at the last look
        self._patience = 0.0  # seconds of silence that the body still has
        self._unread_seconds = 0.0  # for which answers have lain here without being fetched
        self._since: float | None = None  # when the message now coming in began; None between messages
        self._running: RequestResponseCycle | None = None  # with the application
        self._in_body = False
        self._head_bytes = 0
        self._raw_bytes = 0  # of this message, as they came
        self._body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection is open; one too many takes the place of a silent one, or else is told so and closed."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        self._since = self._looked_at = self.loop.time()
        if len(self.connections) > self._limits.connections and not self._take_a_place():
            self._give_up(TOO_MANY, unasked=True)
        else:
            self._await_more()

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
        if len(self.pipeline) >= PIPELINED:
            raise _TooMuch
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
        self._since = self._looked_at = self.loop.time()
        self._patience, self._seen_bytes = self._limits.patience_seconds, 0

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        if self in self._awaited:
            self._await_more()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The message is in."""
        self._since, self._in_body, self._raw_bytes = None, False, 0
        self._awaited.pop(self, None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The request is answered; the next one may come."""
        super().on_response_complete()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()  # uvicorn did so before it took the next request out of the pipeline
        if not self._storing():
            self._await_more()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words are not used
        """The parser has given up on this connection."""
        self._give_up(HEAD_TOO_LARGE if self._head_bytes > self._limits.head_bytes else MALFORMED)

    def _unsupported_upgrade_warning(self) -> None:
        """An upgrade is never taken (RFC 9110 section 7.8). The parser is lost behind it: this request is the last."""
        self.cycle.keep_alive = False

    def owes(self) -> bool:
        """Whether a request has begun here that is not answered yet."""
        return self._running is not None and not self._running.response_complete

    def enforce(self, now: float) -> None:
        """A message that takes too long to come in is refused; who sends none, or fetches no answer, is cut off."""
        elapsed, self._looked_at = min(now - self._looked_at, STALL_SECONDS), now
        self._unread_seconds = self._unread_seconds + elapsed if self.transport.get_write_buffer_size() else 0.0
        if self._unread_seconds > self._limits.answer_seconds:
            self.transport.abort()
        elif self._since is not None and not self._storing():
            late = self._body_is_late(elapsed) if self._in_body else now - self._since > self._limits.head_seconds
            if late:
                self._give_up(TOO_SLOW)

    def _body_is_late(self, elapsed: float) -> bool:
        """Whether its patience has run out: bytes buy time at `body_rate`, never more than `patience_seconds` of it.

        So a body of n bytes takes at most patience + n / rate seconds, and an early burst buys no long silence.
        """
        gained, self._seen_bytes = self._body_bytes - self._seen_bytes, self._body_bytes
        patience = self._patience - elapsed + gained / self._limits.body_rate
        self._patience = min(self._limits.patience_seconds, patience)
        return self._patience < 0

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; nobody writes to it any more, also where a later request waits behind this one."""
        self._awaited.pop(self, None)
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

    def _await_more(self) -> None:
        """Of all connections that something is to come from, this is the one heard of last."""
        self._heard_at = self.loop.time()
        self._awaited.pop(self, None)
        self._awaited[self] = None

    def _take_a_place(self) -> bool:
        """Whether the sender that has been silent the longest had to go for this one."""
        other = next(iter(self._awaited), None)
        if other is None or (other._in_body and self.loop.time() - other._heard_at < UPLOAD_SILENT_SECONDS):
            return False
        del self._awaited[other]
        if other.transport.is_closing() or other.transport.get_write_buffer_size():
            other.transport.abort()  # it would stay for as long as it does not fetch its answers
        else:
            other._give_up(TOO_MANY)
        return True

    def _give_up(self, problem: Problem, *, unasked: bool = False) -> None:
        """The connection ends: with the problem if it is of the request coming in, else after the answer due.

        Where nothing has come in yet, the problem is told only if it is to be told `unasked`.
        """
        if self.transport.is_closing():
            return
        running = self._running
        if running is not None and self._storing():
            # Its own answer is the last thing said here, or that of the last whole request behind it: another one would
            # be taken for it.
            (running if self.cycle.more_body else self.cycle).keep_alive = False
            self.flow.pause_reading()
            return
        uploading = running is not None and not running.response_complete
        started = running is not None and uploading and running.response_started
        if not started and (self._raw_bytes or unasked):
            self._on_refused(problem.reason)
            self.transport.write(_raw(problem))
        self.transport.close()
        if running is not None and uploading:
            running.disconnected = True
            running.message_event.set()

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.head_bytes:
            raise _TooMuch


def _raw(problem: Problem) -> bytes:
    reply = refusal(problem, 1 if problem.status == 503 else 0)
    lines = [name + b": " + value + b"\r\n" for name, value in [*reply.headers, CLOSE]]
    return b"".join([STATUS_LINE[problem.status], *lines, b"\r\n", reply.body])
