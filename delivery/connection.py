"""One connection to a destination: bytes out, an answer in, a deadline over both.

An exchange ends exactly once: with the answer, its cap, the deadline, the peer's closing, or a cancellation. Whatever
ended it, `is_closed` says afterwards whether the connection may carry another.
"""

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import sys
import termios
from dataclasses import dataclass
from enum import Enum, auto
from typing import cast

from delivery.answer import Answer, BadAnswer

BODY_GRACE_SECONDS = 0.5
"""How long a body may trickle in once the status is known: the outcome stands, this buys a reusable connection and a
snippet for people, and must not hold a slot for the rest of a long timeout."""


class Ending(Enum):
    """What ended an exchange."""

    ANSWERED = auto()
    """Status and headers are in."""
    TIMED_OUT = auto()
    CLOSED = auto()
    """The peer closed or reset the connection before it had answered."""
    MALFORMED = auto()


@dataclass(frozen=True, slots=True)
class End:
    """What ended an exchange; `unread` where the peer provably never got the whole request."""

    ending: Ending
    detail: str = ""
    unread: bool = False


class Connection(asyncio.Protocol):
    """A connection; at most one exchange at a time."""

    __slots__ = ("_answer", "_end", "_loop", "_timer", "_transport", "is_closed", "made_at", "used_at")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._end: asyncio.Future[End] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_closed = False
        self.made_at = self.used_at = loop.time()

    async def exchange(self, request: bytes, deadline: float) -> tuple[Answer, End]:
        """The answer as far as it came, and what ended the exchange, at the loop's time `deadline` at the latest.

        A cancelled exchange closes the connection.
        """
        answer = self._answer = Answer()
        self._end = self._loop.create_future()
        self._timer = self._loop.call_at(deadline, self._expire)
        try:
            if self._transport is None or self.is_closed:
                self._finish(End(Ending.CLOSED, "closed before the request", unread=True))
            else:
                self._transport.write(request)
            return answer, await self._end
        finally:
            self._timer.cancel()
            self._answer = self._end = None
            self.used_at = self._loop.time()
            if not (answer.complete and answer.reusable) or not self._is_drained():
                self.abort()

    def abort(self) -> None:
        """The connection is closed at once; what was under way ends. What has not arrived never will."""
        self.is_closed = True
        if self._transport is not None and not self._transport.is_closing():
            if _unacknowledged_bytes(self._transport):
                _discard_unsent(self._transport)
            self._transport.abort()

    # --- called by the loop ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            self.abort()  # nobody asked: whatever it is must not become the next answer
            return
        is_news = answer.status is None
        try:
            answer.feed(data)
        except BadAnswer as problem:
            self._finish(End(Ending.MALFORMED, str(problem)))
            return
        if answer.status is None:
            return
        if answer.complete or answer.is_full:
            self._finish(End(Ending.ANSWERED))
        elif is_news:
            self._shorten()

    def eof_received(self) -> None:
        self.is_closed = True
        if self._answer is None:
            return
        unread = self._is_unread()
        try:
            self._answer.end()
        except BadAnswer as problem:
            self._finish(End(Ending.CLOSED, str(problem), unread))
        else:
            self._finish(End(Ending.ANSWERED))

    def connection_lost(self, problem: Exception | None) -> None:
        self.is_closed = True
        unread = isinstance(problem, BrokenPipeError)  # the kernel took nothing of what was written
        self._finish(End(Ending.CLOSED, "reset before the answer" if problem else "closed before the answer", unread))

    # --- how it ends -------------------------------------------------------------------------------------------------

    def _finish(self, end: End) -> None:
        if self._end is None or self._end.done():
            return
        if self._answer is not None and self._answer.status is not None:
            end = End(Ending.ANSWERED)  # the status decides, whatever became of the body
        self._end.set_result(end)

    def _expire(self) -> None:
        self._finish(End(Ending.TIMED_OUT))

    def _shorten(self) -> None:
        """From here on the body has only its grace."""
        until = self._loop.time() + BODY_GRACE_SECONDS
        if self._timer is not None and until < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(until, self._expire)

    def _is_drained(self) -> bool:
        """Whether the whole request has left: a destination may answer before it has read it."""
        return self._transport is not None and not self._transport.get_write_buffer_size()

    def _is_unread(self) -> bool:
        """Whether the peer closed without having received the whole request: it may be sent again without a duplicate.

        A server that closes an idle connection while a request is on its way to it has sent its FIN before the
        request arrived, so the request is still unacknowledged when that FIN is read. One that read the request and
        hung up acknowledges it with the FIN at the latest. Only meant of a connection that was used before.
        """
        if self._answer is None or self._answer.taken or self._transport is None:
            return False
        return not self._is_drained() or _unacknowledged_bytes(self._transport) > 0


def _unacknowledged_bytes(transport: asyncio.Transport) -> int:
    """Bytes written that the peer's kernel has not acknowledged (Linux SIOCOUTQ); 0 where that cannot be known."""
    if sys.platform != "linux":
        return 0
    try:
        answer = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    except (OSError, AttributeError):
        return 0
    return int(struct.unpack("i", answer)[0])


def _discard_unsent(transport: asyncio.Transport) -> None:
    """Closing will forget what the peer's kernel does not have. Else ours would go on sending it after we gave it up:
    when a network is back after minutes the destination would get a request that was written off long ago, out of turn.
    """
    with contextlib.suppress(OSError, AttributeError):
        descriptor = os.dup(transport.get_extra_info("socket").fileno())
        with socket.socket(fileno=descriptor) as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
