"""`POST /in/{partner}`: take the bytes, verify, store, answer. A raw ASGI callable; all else goes to `rest`.

Nothing that fails here may look like an answer it is not: whatever is unexpected is a 503, since the sender will come
back and deduplication makes it one event. After COMMIT there is nothing left that could fail.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from domain.events import event_id
from domain.problems import Problem
from domain.tallies import PARTNER
from domain.verification import Reason, Response, Scheme
from ingest.limits import Limits
from ingest.metrics import NOBODY, IngestMetrics
from ingest.reception import Reception
from ingest.replies import CLOSE, Header, Reply, accepted, answer, drop, has_body, refusal, told
from ingest.uploads import Upload, Uploads
from storage.configuration import Snapshot
from storage.errors import StorageUnavailable
from storage.groupcommit import QueueFull
from storage.log import Answer, Arrival

PREFIX = "/in/"
INLINE_BYTES = 1 << 20  # hashing more takes over a millisecond: another thread does it
REPORT_SECONDS = 10.0  # what a sender can bring about gets a line in the log this often
LENGTH_DIGITS = 19  # of a body's size; int() takes no more than 4,300

NOTHING_HERE = Problem(404, "not_found", "Events are sent to /in/{partner}.")
UNKNOWN = Problem(404, "unknown_partner", "No partner of this name.")
NOT_POST = Problem(405, "method_not_allowed", "Events come by POST.")
TOO_LARGE = Problem(413, "too_large", "The body is larger than this partner may send.")
NO_LENGTH = Problem(400, "malformed", "The content-length is no length.")
CODED = Problem(400, "malformed", "The only transfer coding taken is chunked.")
UNVERIFIED = Problem(401, "unauthenticated", "The proof of the sender's identity is missing or wrong.")
BACKLOG_FULL = Problem(429, "backlog_full", "Too many of this partner's events wait for delivery.")
RATE_LIMITED = Problem(429, "rate_limited", "This partner sends faster than its limit.")
OVERLOADED = Problem(503, "overloaded", "Too much is being received at once.")
STOPPING = Problem(503, "stopping", "This server is about to stop. Send it again.")
UNAVAILABLE = Problem(503, "unavailable", "The event is not known to be stored. Send it again.")

RETRY_SOON, RETRY_LATER = 1, 5  # seconds: a queue drains in one, a database comes back in a few
RETRY_AFTER = {
    OVERLOADED.reason: RETRY_SOON,
    STOPPING.reason: RETRY_SOON,
    UNAVAILABLE.reason: RETRY_LATER,
}


class Accepting(Protocol):
    """The log, as far as it is used here."""

    def accept(self, arrival: Arrival) -> Awaitable[Answer]:
        """The answer after COMMIT."""
        ...


class Configured(Protocol):
    """The configuration, as far as it is used here. Version 0 is none yet."""

    @property
    def snapshot(self) -> Snapshot:
        """The settings in force."""
        ...


class Edge:
    """The ASGI application. `held_bytes` and `in_flight` are what it has taken on at this moment.

    `clock` (Unix seconds) judges senders' timestamps. Once it is `stopping` no request is taken on any more.
    """

    def __init__(
        self,
        log: Accepting,
        configuration: Configured,
        schemes: Mapping[str, Scheme],
        metrics: IngestMetrics,
        rest: ASGIApp,
        limits: Limits,
        clock: Callable[[], float],
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._log, self._configuration, self._schemes = log, configuration, schemes
        self._metrics, self._rest, self.limits, self._clock = metrics, rest, limits, clock
        self._stopping = stopping
        self._snapshot: Snapshot | None = None
        self._receptions: dict[str, Reception] = {}
        self._reported: dict[tuple[str, Reason], float] = {}
        self._told_unexpected_at, self._untold_unexpected = 0.0, 0
        self._logger = structlog.get_logger("ingest")
        self._uploads = Uploads()
        self.in_flight = 0

    @property
    def held_bytes(self) -> int:
        """The size of all bodies in memory."""
        return self._uploads.held_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request. Never raises."""
        if scope["type"] != "http":
            return
        try:
            if scope["path"].startswith(PREFIX):
                reply = await self._take(scope, receive)
            elif has_body(scope):
                reply = await drop(scope, receive, NOTHING_HERE)
            else:
                await self._rest(scope, receive, send)
                return
        except asyncio.CancelledError:
            # The server's drain has run out. Whether it will be stored is unknown, and 503 says just that; raising
            # would only make the server write its own 500.
            reply = refusal(UNAVAILABLE, RETRY_SOON)
        except Exception as problem:  # noqa: BLE001 - told there
            self._tell_unexpected(problem)
            reply = refusal(UNAVAILABLE, RETRY_LATER)
            reply.headers.append(CLOSE)  # where the body stands is unknown too
        if reply is not None:
            if self._stopping():
                reply.headers.append(CLOSE)
            await answer(reply, receive, send)

    async def _take(self, scope: Scope, receive: Receive) -> Reply | None:
        """The answer to one request below /in/; None if the sender has gone before all was said."""
        if self._stopping():
            return await self._refuse_unread(scope, receive, NOBODY, STOPPING)
        if scope["method"] != "POST":
            return await self._ask(scope, receive)
        reception = self._reception(scope["path"][len(PREFIX) :])
        if reception is None:
            known = self._snapshot is not None and self._snapshot.version > 0
            return await self._refuse_unread(scope, receive, NOBODY, UNKNOWN if known else UNAVAILABLE)
        partner = reception.partner
        wrong = self._wrong_from_the_start(scope["headers"], partner.max_body)
        if wrong is not None:
            return await self._refuse_unread(scope, receive, partner.name, wrong)
        upload = Upload(self._uploads, partner.name)
        try:
            body = await _read(receive, partner.max_body, upload, self.limits.body_bytes)
            if isinstance(body, Problem):
                return self._refuse(partner.name, body, cut=True)
            if body is None:
                self._metrics.refuse(partner.name, "disconnected")
                return None
            return await self._store(reception, scope, body)
        except asyncio.CancelledError:
            if not upload.is_cut:
                raise
            _go_on()
            return self._refuse(partner.name, OVERLOADED, cut=True)
        finally:
            upload.release()

    async def _ask(self, scope: Scope, receive: Receive) -> Reply:
        """The answer to another method than POST: some providers ask a question by GET."""
        reception = self._reception(scope["path"][len(PREFIX) :])
        if reception is not None and not has_body(scope):
            response = reception.answer(scope["method"], scope["headers"], scope["query_string"], self._clock())
            if response is not None:
                return self._tell(reception, response)
        return await self._refuse_unread(scope, receive, NOBODY, NOT_POST)

    def _wrong_from_the_start(self, headers: list[Header], max_body: int) -> Problem | None:
        framing = dict(headers)
        declared = framing.get(b"content-length")
        if declared is not None and len(declared) > LENGTH_DIGITS:
            return NO_LENGTH
        if declared is not None and int(declared) > max_body:
            return TOO_LARGE
        if framing.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            return CODED
        return OVERLOADED if self.in_flight >= self.limits.in_flight else None

    async def _store(self, reception: Reception, scope: Scope, body: bytes) -> Reply:
        """The answer to a POST that has been read to its end."""
        if self.in_flight >= self.limits.in_flight:
            return self._refuse(reception.partner.name, OVERLOADED)
        self.in_flight += 1
        try:
            arguments = scope["headers"], scope["query_string"], body, self._clock()
            if len(body) > INLINE_BYTES:
                arrival = await asyncio.to_thread(reception.judge, *arguments)
            else:
                arrival = reception.judge(*arguments)
            if isinstance(arrival, Response | Reason):
                return self._tell(reception, arrival)
            return self._stored(reception, await self._log.accept(arrival))
        except QueueFull:
            return self._refuse(reception.partner.name, OVERLOADED)
        except StorageUnavailable:
            return self._refuse(reception.partner.name, UNAVAILABLE)
        finally:
            self.in_flight -= 1

    def _stored(self, reception: Reception, said: Answer) -> Reply:
        """The answer to a POST that the log has answered."""
        if said.received_at is None:
            name = reception.partner.name
            if said.status == "unknown_partner":
                return self._refuse(NOBODY, UNKNOWN)
            problem = RATE_LIMITED if said.status == "rate_limited" else BACKLOG_FULL
            return self._refuse(name, problem, max(1, said.retry_after or 1))
        if said.status == "stored":
            reception.accepted.inc()
            reception.tally["accepted"] += 1
        else:
            reception.duplicates.inc()
            reception.tally["duplicates"] += 1
            if said.conflict:
                reception.conflicts.inc()
        identity = event_id(reception.partner.id, said.sequence, said.received_at)
        return accepted(identity, said.sequence, duplicate=said.status != "stored")

    def _reception(self, name: str) -> Reception | None:
        """The partner's reception, made anew when the configuration has changed; None if there is none."""
        snapshot = self._configuration.snapshot
        if snapshot is not self._snapshot:
            self._snapshot, self._receptions, self._reported = snapshot, {}, {}
        reception = self._receptions.get(name)
        if reception is None and (partner := snapshot.partners.get(name)) is not None:
            reception = Reception(partner, self._schemes[partner.verify], self._metrics)
            self._receptions[name] = reception
        return reception

    def _tell(self, reception: Reception, response: Response | Reason) -> Reply:
        """The answer to what is no event: a question, or a sender without proof."""
        if isinstance(response, Response):
            reception.questions.inc()
            return told(response)
        reply = self._unverified(reception.partner.name, response)
        if reception.scheme.authenticate:
            reply.headers.append((b"www-authenticate", reception.scheme.authenticate))
        return reply

    def _unverified(self, partner: str, reason: Reason) -> Reply:
        """One answer for every reason; which it was is counted, and logged now and then."""
        self._metrics.unverified.labels(partner, reason.value).inc()
        self._metrics.tally.of(PARTNER, partner)[f"unverified:{reason.value}"] += 1
        now = self._clock()
        if now - self._reported.get((partner, reason), 0) >= REPORT_SECONDS:
            self._reported[partner, reason] = now
            self._logger.warning("ingest.unverified", partner=partner, reason=reason.value)
        return self._refuse(partner, UNVERIFIED)

    def _tell_unexpected(self, problem: Exception) -> None:
        """A defect is counted, and logged now and then with how often it came since: a sender may have found it."""
        self._metrics.refuse(NOBODY, "unexpected")
        now = self._clock()
        if now - self._told_unexpected_at < REPORT_SECONDS:
            self._untold_unexpected += 1
            return
        self._logger.error("ingest.unexpected", untold=self._untold_unexpected, exc_info=problem)
        self._told_unexpected_at, self._untold_unexpected = now, 0

    def _refuse(self, partner: str, problem: Problem, retry_after: int = 0, *, cut: bool = False) -> Reply:
        self._metrics.refuse(partner, problem.reason)
        return refusal(problem, retry_after or RETRY_AFTER.get(problem.reason, 0), cut=cut)

    async def _refuse_unread(self, scope: Scope, receive: Receive, partner: str, problem: Problem) -> Reply:
        self._metrics.refuse(partner, problem.reason)
        return await drop(scope, receive, problem, RETRY_AFTER.get(problem.reason, 0))


def _go_on() -> None:
    """The cancelling of this task was meant for what it was waiting for."""
    if (task := asyncio.current_task()) is not None:
        task.uncancel()


async def _read(receive: Receive, limit: int, upload: Upload, bound: int) -> bytes | Problem | None:
    """The whole body; a problem as soon as it is too large, whatever was declared; None if the sender has gone."""
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > limit:
            return TOO_LARGE
        more = message.get("more_body", False)
        if not upload.add(len(piece), bound, more=more):
            return OVERLOADED
        if not more:
            return b"".join([*pieces, piece]) if pieces else piece
        pieces.append(piece)
