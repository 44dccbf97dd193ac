"""One attempt as a request: the partner's headers, the destination's, ours, and the signature over the body's bytes."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from delivery.exchange import Outgoing
from domain.destinations import Destination
from domain.headers import Header, as_read, header_value, pass_on
from domain.signatures import sign


class Subject(NamedTuple):
    """What an attempt is about: one event, as it was received."""

    event_id: str
    partner: str
    sequence: int
    type: str | None
    headers: Sequence[Header]  # as received
    body: bytes  # as received
    withheld: Collection[bytes] = ()  # names, in lower case, that proved the partner's identity as a bare secret


class Built(NamedTuple):
    """The request, and what of the partner's headers could not go with it."""

    outgoing: Outgoing
    dropped: tuple[bytes, ...]


def build_request(
    subject: Subject,
    destination: Destination,
    *,
    attempt: int,
    replay: str | None,
    timestamp: int,
    version: str,
    may_start: Callable[[], bool] | None = None,
) -> Built:
    """The request of attempt number `attempt` (from 1) at `timestamp` (Unix seconds).

    A configured header replaces the partner's of the same name; nothing is invented: without a content type the
    request has none. Raises: BadSecret.
    """
    passed = pass_on(subject.headers, subject.withheld)
    configured = [(name.lower().encode(), value.encode()) for name, value in destination.headers]
    replaced = {as_read(name) for name, _ in configured}
    headers = [header for header in passed.headers if as_read(header[0]) not in replaced]
    headers += configured
    headers += [
        (b"user-agent", b"Hookyard/" + version.encode()),
        (b"webhook-id", subject.event_id.encode()),
        (b"webhook-timestamp", b"%d" % timestamp),
        (b"webhook-signature", sign(destination.secrets, subject.event_id, timestamp, subject.body).encode()),
        (b"hookyard-partner", subject.partner.encode()),
        (b"hookyard-sequence", b"%d" % subject.sequence),
        (b"hookyard-attempt", b"%d" % attempt),
    ]
    if subject.type is not None:
        headers.append((b"hookyard-event-type", header_value(subject.type)))
    if replay is not None:
        headers.append((b"hookyard-replay", replay.encode()))
    outgoing = Outgoing(destination.url, headers, subject.body, destination.timeout.total_seconds(), may_start)
    return Built(outgoing, passed.unprintable)
