"""What a destination receives."""

from datetime import timedelta

from delivery.request import Built, Subject, build_request
from domain.destinations import Destination
from domain.signatures import sign

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

WAREHOUSE = Destination(
    id=1, name="warehouse", url="https://warehouse.example/hook", headers=(("X-Api-Token", "t"),), secrets=(SECRET,),
    state="active", timeout=timedelta(seconds=30), concurrency=10, rate=None, max_attempts=12,
    retry_base=timedelta(seconds=5), retry_factor=3, retry_cap=timedelta(hours=6), park_on=frozenset(),
    suspend_after=timedelta(days=5), on_park="continue", breaker_failures=5, breaker_reset=timedelta(seconds=30),
)  # fmt: skip

ORDER = Subject("evt_1", "shop", 7, "order.paid", [(b"content-type", b"text/plain"), (b"x-a", b"1")], b'{"a":1}')


def built(subject: Subject = ORDER, destination: Destination = WAREHOUSE, replay: str | None = None) -> Built:
    return build_request(subject, destination, attempt=3, replay=replay, timestamp=1700000000, version="0.1.0")


def test_an_attempt_carries_the_partners_headers_the_configured_and_ours() -> None:
    assert built().outgoing.headers == [
        (b"content-type", b"text/plain"),
        (b"x-a", b"1"),
        (b"x-api-token", b"t"),
        (b"user-agent", b"Hookyard/0.1.0"),
        (b"webhook-id", b"evt_1"),
        (b"webhook-timestamp", b"1700000000"),
        (b"webhook-signature", sign([SECRET], "evt_1", 1700000000, b'{"a":1}').encode()),
        (b"hookyard-partner", b"shop"),
        (b"hookyard-sequence", b"7"),
        (b"hookyard-attempt", b"3"),
        (b"hookyard-event-type", b"order.paid"),
    ]
    assert built().outgoing.timeout_seconds == 30


def test_nothing_is_invented() -> None:
    names = {name for name, _ in built(ORDER._replace(headers=[], type=None)).outgoing.headers}
    assert not names & {b"content-type", b"accept", b"accept-encoding", b"hookyard-event-type", b"hookyard-replay"}


def test_a_replay_says_so() -> None:
    assert (b"hookyard-replay", b"42") in built(replay="42").outgoing.headers


def test_a_configured_header_replaces_the_partners() -> None:
    headers = built(ORDER._replace(headers=[(b"X-API-Token", b"partner's")])).outgoing.headers
    assert [value for name, value in headers if name == b"x-api-token"] == [b"t"]


def test_what_proved_the_partner_stays_behind_and_what_was_dropped_is_told() -> None:
    subject = ORDER._replace(headers=[(b"x-key", b"secret"), (b"x-odd", b"\xe9")], withheld={b"x-key"})
    request = built(subject)
    assert request.dropped == (b"x-odd",)
    assert not {b"x-key", b"x-odd"} & {name for name, _ in request.outgoing.headers}
