"""The one seam to the outside: `send` makes one HTTP request and says what came of it.

Ours, on asyncio and the answer parser beside it, because a delivery asks for what general clients do not offer
together: the judged address is the one dialled; the whole exchange ends at a deadline or at a cancellation, and its
connection with it; the status stands as soon as its headers are in; nothing is followed, decoded, remembered, invented
or re-encoded; and a request that a closing idle connection provably never took is sent again on a fresh one.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence

from delivery.answer import Answer
from delivery.connection import Connection, End, Ending
from delivery.dial import Dialler, Unreachable, trusting
from delivery.exchange import SNIPPET_BYTES, Exchange, Outcome, Outgoing
from delivery.resolve import Resolver
from domain.addresses import Network
from domain.urls import BadURL, Target, parse, redact

IDLE_SECONDS = 30.0  # an idle connection is kept
CONNECTION_SECONDS = 300.0  # from then on it is not used again, so that a change in DNS is followed
IDLE_CONNECTIONS = 1000  # kept in all

Origin = tuple[str, str, int]


class Client:
    """Sends for one event loop, in which it must be made. Connections are shared by scheme, host and port."""

    __slots__ = ("_dialler", "_idle", "_idle_count", "_sweep")

    def __init__(
        self,
        allowed: Sequence[Network] = (),
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._dialler = Dialler(allowed, resolver or Resolver(), tls or trusting())
        self._idle: dict[Origin, deque[Connection]] = {}
        self._idle_count = 0
        self._sweep: asyncio.TimerHandle | None = None

    async def send(self, request: Outgoing) -> Exchange:
        """What came of one request. Never raises for anything a destination, a name or a URL can do.

        A cancellation goes through, after the connection is closed: what the destination did is then unknown.
        """
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        try:
            target = parse(request.url)
            wire = _on_the_wire(request, target)
        except (BadURL, ValueError) as problem:
            why = "the URL is malformed" if isinstance(problem, BadURL) else str(problem)
            return Exchange(Outcome.UNDELIVERABLE, 0, error=why)
        try:
            answer, end = await self._exchange(request, target, wire, begun_at + request.timeout_seconds)
        except Unreachable as problem:
            return Exchange(problem.outcome, _ms(loop.time() - begun_at), error=str(problem))
        return _told(answer, end, _ms(loop.time() - begun_at), request.timeout_seconds)

    async def close(self) -> None:
        """Every idle connection is closed; exchanges under way end by themselves."""
        if self._sweep is not None:
            self._sweep.cancel()
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        self._idle.clear()
        self._idle_count = 0
        await asyncio.sleep(0)  # the transports tell their protocols in the loop's next turn

    @property
    def idle_connections(self) -> int:
        """Connections kept for another exchange."""
        return self._idle_count

    async def _exchange(self, request: Outgoing, target: Target, wire: bytes, deadline: float) -> tuple[Answer, End]:
        """One exchange, on an idle connection if there is one. Raises: Unreachable."""
        connection = self._take(target.origin)
        while True:
            was_idle = connection is not None
            if connection is None:
                connection = await self._dialler.dial(target, deadline - asyncio.get_running_loop().time())
            if request.may_start is not None and not request.may_start():
                self._keep(target.origin, connection)
                raise Unreachable(Outcome.WITHDRAWN, "too late to start")
            answer, end = await connection.exchange(wire, deadline)
            if not connection.is_closed:
                self._keep(target.origin, connection)
            if not (was_idle and end.unread):
                return answer, end
            connection = None

    # --- idle connections --------------------------------------------------------------------------------------------

    def _take(self, origin: Origin) -> Connection | None:
        """The idle connection used last, if one still lives."""
        connections = self._idle.get(origin)
        now = asyncio.get_running_loop().time()
        while connections:
            connection = connections.pop()
            self._idle_count -= 1
            if not connection.is_closed and now - connection.used_at < IDLE_SECONDS:
                return connection
            connection.abort()
        self._idle.pop(origin, None)
        return None

    def _keep(self, origin: Origin, connection: Connection) -> None:
        """The connection is idle now; an old one, or one too many, is closed."""
        loop = asyncio.get_running_loop()
        if self._idle_count >= IDLE_CONNECTIONS or loop.time() - connection.made_at > CONNECTION_SECONDS:
            connection.abort()
            return
        self._idle.setdefault(origin, deque()).append(connection)
        self._idle_count += 1
        if self._sweep is None:
            self._sweep = loop.call_later(IDLE_SECONDS / 2, self._close_the_idle)

    def _close_the_idle(self) -> None:
        """Closes what nobody has used for long; comes again while anything is idle."""
        self._sweep = None
        loop = asyncio.get_running_loop()
        for origin, connections in list(self._idle.items()):
            while connections and (connections[0].is_closed or loop.time() - connections[0].used_at >= IDLE_SECONDS):
                connections.popleft().abort()
                self._idle_count -= 1
            if not connections:
                del self._idle[origin]
        if self._idle:
            self._sweep = loop.call_later(IDLE_SECONDS / 2, self._close_the_idle)


def _on_the_wire(request: Outgoing, target: Target) -> bytes:
    """The request's bytes. Raises: ValueError where a header would break the framing."""
    lines = [b"POST %s HTTP/1.1\r\nhost: %s" % (target.path.encode(), target.authority.encode())]
    lines += [name + b": " + value for name, value in request.headers]
    lines.append(b"content-length: %d\r\n\r\n" % len(request.body))
    head = b"\r\n".join(lines)
    if head.count(b"\n") != len(lines) + 2 or head.count(b"\r") != len(lines) + 2 or b"\0" in head:
        raise ValueError("a header has a line break or a NUL")
    return head + request.body


def _told(answer: Answer, end: End, duration_ms: int, timeout_seconds: float) -> Exchange:
    """The exchange as a value."""
    if answer.status is None:
        outcome, error = {
            Ending.TIMED_OUT: (Outcome.TIMEOUT, f"no answer within {timeout_seconds:g} s"),
            Ending.MALFORMED: (Outcome.PROTOCOL_ERROR, end.detail),
        }.get(end.ending, (Outcome.CONNECT_ERROR, end.detail))
        if end.ending is Ending.CLOSED and answer.taken:
            outcome = Outcome.PROTOCOL_ERROR
        return Exchange(outcome, duration_ms, error=error)
    if 200 <= answer.status < 300:
        return Exchange(Outcome.SUCCESS, duration_ms, answer.status, snippet=answer.body[:SNIPPET_BYTES])
    location = _location(answer)
    is_redirect = 300 <= answer.status < 400
    return Exchange(
        Outcome.REDIRECT if is_redirect else Outcome.HTTP_ERROR,
        duration_ms,
        answer.status,
        f"HTTP {answer.status}" + (f" to {location}" if is_redirect and location else ""),
        tuple(value.decode("latin-1") for value in answer.all(b"retry-after")[:3]),
        location,
        answer.body[:SNIPPET_BYTES],
    )


def _location(answer: Answer) -> str | None:
    """Where a redirect points, as far as it may be shown: printable, without credentials, path and query."""
    values = answer.all(b"location")
    if not values:
        return None
    text = "".join(c if c.isprintable() else "?" for c in values[0].decode("latin-1"))
    return redact(text)[:200]


def _ms(seconds: float) -> int:
    return max(round(seconds * 1000), 0)
