"""Every answer of `POST /in/{partner}`, and what each leaves behind."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import structlog

from domain.events import place_of, unpack_headers
from domain.verification import Draft, find_scheme
from ingest.health import Health
from ingest.limits import Limits
from storage.configuration import EMPTY, Snapshot
from storage.errors import StorageUnavailable
from storage.groupcommit import QueueFull
from storage.log import Answer, Arrival
from tests.edge_stand import ACME, NOW, RECEIVED_AT, SECRET, SIGNED, Stand


def _raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]


def problem(answer: httpx.Response, status: int, reason: str) -> dict[str, Any]:
    """The problem document, checked against RFC 9457."""
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["status"] == status
    assert document["reason"] == reason
    assert document["type"] == "about:blank"
    assert document["title"]
    assert document["detail"]
    return document


async def test_a_stored_event_is_answered_with_its_id_and_number(stand: Stand) -> None:
    answer = await stand.post(body=b'{"type":"order.created","customer":7}')

    assert answer.status_code == 202
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    assert document == {"event": document["event"], "sequence": 1, "duplicate": False}
    place = place_of(document["event"])
    assert (place.partner_id, place.sequence, place.received_at) == (1, 1, RECEIVED_AT)
    assert stand.counted("hookyard_events_accepted_total", partner="acme") == 1


async def test_what_is_stored_is_what_was_received(stand: Stand) -> None:
    body = b'\xff\x00{"type" : "odd"'

    answer = await stand.client.post(
        "/in/acme?a=%20&a=b", content=body, headers=[(b"X-Dup", b"1"), (b"X-Dup", b"2"), (b"X-Raw", b"caf\xe9")]
    )

    assert answer.status_code == 202
    (arrival,) = stand.log.arrivals
    assert (arrival.body, arrival.query, arrival.partner_id, arrival.shard) == (body, b"a=%20&a=b", 1, 3)
    assert (arrival.type, arrival.order_key, arrival.digest) == (None, None, None)
    kept = [header for header in unpack_headers(arrival.headers) if header[0].startswith(b"x-")]
    assert kept == [(b"x-dup", b"1"), (b"x-dup", b"2"), (b"x-raw", b"caf\xe9")]


async def test_type_order_key_and_identity_are_read_at_the_door(stand: Stand) -> None:
    await stand.post(body=b'{"type":"order.created","customer":7}', webhook_id="m1")
    await stand.post(body=b'{"type":"a\\u0000b","customer":[]}')

    first, second = stand.log.arrivals
    assert first.type == "order.created"
    assert first.order_key
    assert len(first.digest or b"") == 32
    assert (second.type, second.order_key, second.digest) == (None, None, None)


async def test_credentials_are_neither_stored_nor_passed_on(stand: Stand) -> None:
    await stand.post(authorization="Bearer hunter2", cookie="s=hunter2", proxy_authorization="hunter2", x_ok="1")

    (arrival,) = stand.log.arrivals
    assert b"hunter2" not in arrival.headers
    assert b"x-ok:1" in arrival.headers


async def test_a_repeat_is_answered_with_the_first_events_place(stand: Stand) -> None:
    first = await stand.post(body=b"1", webhook_id="m1")
    again = await stand.post(body=b"1", webhook_id="m1")
    other = await stand.post(body=b"2", webhook_id="m1")

    assert again.status_code == other.status_code == 202
    assert again.json() == other.json() == first.json() | {"duplicate": True}
    assert stand.counted("hookyard_events_accepted_total", partner="acme") == 1
    assert stand.counted("hookyard_events_duplicate_total", partner="acme") == 2
    assert stand.counted("hookyard_events_conflicting_total", partner="acme") == 1


async def test_a_paused_partner_goes_on_being_accepted(stand: Stand) -> None:
    headers = find_scheme("github").sign(Draft(b"{}", "s", {}, NOW, "d-1", "ping"))

    answer = await stand.client.post("/in/octo", content=b"{}", headers=dict(headers))

    assert answer.status_code == 202
    (arrival,) = stand.log.arrivals
    assert arrival.type == "ping"
    assert arrival.digest is not None


async def test_every_failed_proof_gets_the_same_answer_and_its_reason_is_counted(stand: Stand) -> None:
    good = dict(find_scheme("standard").sign(Draft(b"{}", SECRET, {}, NOW, "m1", None)))
    stale = dict(find_scheme("standard").sign(Draft(b"{}", SECRET, {}, NOW - 3600, "m1", None)))

    answers = [
        await stand.client.post("/in/signed", content=b"{}"),
        await stand.client.post("/in/signed", content=b"{}", headers=good | {"webhook-signature": "v1,AAAA"}),
        await stand.client.post("/in/signed", content=b"[]", headers=good),
        await stand.client.post("/in/signed", content=b"{}", headers=stale),
        await stand.client.post(
            "/in/signed", content=b"{}", headers=_raw(good | {"webhook-signature": "v1,\xe9"})
        ),
    ]  # fmt: skip

    told = [problem(answer, 401, "unauthenticated") for answer in answers]
    assert all(document == told[0] for document in told)
    assert stand.counted("hookyard_verification_failures_total", partner="signed", reason="mismatch") == 3
    assert stand.counted("hookyard_verification_failures_total", partner="signed", reason="missing") == 1
    assert stand.counted("hookyard_verification_failures_total", partner="signed", reason="stale") == 1
    assert stand.counted("hookyard_events_refused_total", partner="signed", reason="unauthenticated") == 5
    assert not stand.log.arrivals
    assert (await stand.client.post("/in/signed", content=b"{}", headers=good)).status_code == 202


async def test_a_proof_over_a_large_body_is_judged_beside_the_loop(stand: Stand) -> None:
    stand.configuration.set(replace(SIGNED, max_body=4 << 20))
    stand.edge.limits = Limits()
    body = b"x" * (3 << 20)
    headers = dict(find_scheme("standard").sign(Draft(body, SECRET, {}, NOW, "m1", None)))

    assert (await stand.client.post("/in/signed", content=body, headers=headers)).status_code == 202
    assert (await stand.client.post("/in/signed", content=body + b"y", headers=headers)).status_code == 401


@pytest.mark.parametrize(
    "path",
    ["/in/nobody", "/in/", "/in/ACME", "/in/acme/", "/in/acme%0a", "/in/%00", "/in/..%2fetc", "/in/a:b*",
     "/in/" + "n" * 4000, "/in/%C3%A9", "/in/acme/x"],
)  # fmt: skip
async def test_an_unknown_partner_is_not_found_and_leaves_no_label(stand: Stand, path: str) -> None:
    problem(await stand.post(path), 404, "unknown_partner")

    assert stand.counted("hookyard_events_refused_total", partner="", reason="unknown_partner") == 1
    assert not stand.log.arrivals


@pytest.mark.parametrize("path", ["/in", "/nowhere", "/"])
async def test_there_is_nothing_elsewhere(stand: Stand, path: str) -> None:
    problem(await stand.post(path), 404, "not_found")
    problem(await stand.client.get(path), 404, "not_found")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
async def test_every_method_but_post_is_refused_with_what_is_allowed(stand: Stand, method: str) -> None:
    answer = await stand.client.request(method, "/in/acme")

    assert answer.headers["allow"] == "POST"
    if method != "HEAD":
        problem(answer, 405, "method_not_allowed")
    assert answer.status_code == 405
    assert not stand.log.arrivals


async def test_the_limit_itself_is_allowed_and_one_byte_more_is_not(stand: Stand) -> None:
    assert (await stand.post(body=b"x" * 1000)).status_code == 202

    problem(await stand.post(body=b"x" * 1001), 413, "too_large")
    assert stand.counted("hookyard_events_refused_total", partner="acme", reason="too_large") == 1


async def test_a_chunked_body_is_cut_as_soon_as_the_limit_is_passed(stand: Stand) -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while taken < 100 << 20:
            taken += 1 << 16
            yield b"x" * (1 << 16)

    answer = await stand.post(body=endless())

    problem(answer, 413, "too_large")
    assert answer.headers["connection"] == "close"
    assert taken <= 10 << 20  # the rest of the bounded farewell
    assert not stand.log.arrivals


async def test_a_declared_body_beyond_the_limit_is_refused_before_it_is_sent(stand: Stand) -> None:
    asked = False

    async def waits() -> AsyncIterator[bytes]:
        nonlocal asked
        asked = True
        yield b"x"

    answer = await stand.client.post(
        "/in/acme", content=waits(), headers={"content-length": "1001", "expect": "100-continue"}
    )

    problem(answer, 413, "too_large")
    assert answer.headers["connection"] == "close"


async def test_another_transfer_coding_than_chunked_is_refused(stand: Stand) -> None:
    problem(await stand.post(transfer_encoding="gzip, chunked"), 400, "malformed")


@pytest.mark.parametrize(("status", "reason"), [("backlog_full", "backlog_full"), ("rate_limited", "rate_limited")])
async def test_a_refusal_of_the_log_says_when_to_come_back(stand: Stand, status: Any, reason: str) -> None:
    stand.log.say = lambda arrival: Answer(status, 0, None, False, 17)

    answer = await stand.post()

    problem(answer, 429, reason)
    assert answer.headers["retry-after"] == "17"
    assert stand.counted("hookyard_events_refused_total", partner="acme", reason=reason) == 1


async def test_a_partner_removed_meanwhile_is_not_found(stand: Stand) -> None:
    stand.log.say = lambda arrival: Answer("unknown_partner", 0, None, False, None)

    problem(await stand.post(), 404, "unknown_partner")


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (StorageUnavailable("away"), "unavailable"),
        (QueueFull("full"), "overloaded"),
        (RuntimeError("bug"), "unavailable"),
    ],
)
async def test_what_is_not_known_to_be_stored_is_a_503_never_a_500(
    stand: Stand, failure: Exception, reason: str
) -> None:
    def fail(arrival: Arrival) -> Answer:
        raise failure

    stand.log.say = fail

    answer = await stand.post()

    problem(answer, 503, reason)
    assert int(answer.headers["retry-after"]) > 0
    assert "away" not in answer.text


async def test_without_a_configuration_nobody_is_called_unknown(stand: Stand) -> None:
    stand.configuration.snapshot = EMPTY

    answer = await stand.post("/in/acme")

    problem(answer, 503, "unavailable")
    assert answer.headers["retry-after"]


async def test_an_edit_is_effective_with_the_next_request(stand: Stand) -> None:
    assert (await stand.post()).status_code == 202

    stand.configuration.set(replace(ACME, max_body=1))

    problem(await stand.post(body=b"xx"), 413, "too_large")


async def test_settings_of_a_later_version_are_a_503(stand: Stand) -> None:
    stand.configuration.set(replace(ACME, verify="not-known-yet"))

    problem(await stand.post(), 503, "unavailable")


async def test_beyond_its_bound_of_requests_the_edge_refuses_and_recovers(stand: Stand) -> None:
    gate = asyncio.Event()
    real = stand.log.accept

    async def wait(arrival: Arrival) -> Answer:
        await gate.wait()
        return await real(arrival)

    stand.log.accept = wait  # type: ignore[method-assign]
    posts = [asyncio.create_task(stand.post()) for _ in range(30)]
    while sum(post.done() for post in posts) < 20:
        await asyncio.sleep(0)
    gate.set()
    answers = await asyncio.gather(*posts)

    refused = [answer for answer in answers if answer.status_code != 202]
    assert len(refused) == 20
    for answer in refused:
        problem(answer, 503, "overloaded")
        assert answer.headers["retry-after"] == "1"
    assert (await stand.post()).status_code == 202


async def test_beyond_its_bound_of_bytes_the_edge_refuses_and_recovers(stand: Stand) -> None:
    gate = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"x" * 900
        await gate.wait()
        yield b"x"

    posts = [asyncio.create_task(stand.post(body=slow())) for _ in range(8)]
    while stand.counted("hookyard_events_refused_total", partner="acme", reason="overloaded") < 3:
        await asyncio.sleep(0)
    gate.set()
    answers = await asyncio.gather(*posts)

    assert {answer.status_code for answer in answers} == {202, 503}
    assert sum(answer.status_code == 202 for answer in answers) == 5
    assert (await stand.post()).status_code == 202


class Uploading:
    """A POST whose body comes piece by piece."""

    def __init__(self, stand: Stand, partner: str) -> None:
        self.pieces: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[Any] = []
        scope = {"type": "http", "method": "POST", "path": f"/in/{partner}", "query_string": b"", "headers": []}
        self.task = asyncio.create_task(stand.edge(scope, self.pieces.get, self._send))

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    async def says(self, size: int, *, more: bool = True) -> None:
        self.pieces.put_nowait({"type": "http.request", "body": b"x" * size, "more_body": more})
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def status(self) -> int:
        return self.sent[0]["status"] if self.sent else 0


async def test_when_memory_is_full_the_largest_partners_longest_silent_upload_gives_way(stand: Stand) -> None:
    stand.configuration.set(ACME, replace(ACME, id=9, name="small"))
    small = Uploading(stand, "small")
    await small.says(400)
    first, second, third, fourth, fifth = (Uploading(stand, "acme") for _ in range(5))
    for upload in (first, second, third, fourth, fifth):
        await upload.says(900)
    await first.says(50)  # it was silent, but is no longer

    newcomer = Uploading(stand, "small")
    await newcomer.says(600, more=False)

    assert [upload.status for upload in (first, second, third, newcomer)] == [0, 503, 0, 202]
    assert second.sent[0]["headers"][-1] == (b"connection", b"close")
    assert stand.counted("hookyard_events_refused_total", partner="acme", reason="overloaded") == 1
    for upload in (small, first, third, fourth, fifth):
        await upload.says(1, more=False)
        await asyncio.wait_for(upload.task, 1)
        assert upload.status == 202
    second.pieces.put_nowait({"type": "http.disconnect"})
    await asyncio.wait_for(second.task, 1)
    assert second.task.cancelling() == 0


async def test_an_upload_that_does_not_fit_beside_what_waits_for_commit_is_refused(stand: Stand) -> None:
    gate = asyncio.Event()
    real = stand.log.accept

    async def wait(arrival: Arrival) -> Answer:
        await gate.wait()
        return await real(arrival)

    stand.log.accept = wait  # type: ignore[method-assign]
    whole = [Uploading(stand, "acme") for _ in range(5)]
    for upload in whole:
        await upload.says(990, more=False)
    newcomer = Uploading(stand, "acme")
    await newcomer.says(200, more=False)
    await asyncio.wait_for(newcomer.task, 1)
    gate.set()
    await asyncio.gather(*(upload.task for upload in whole))

    assert newcomer.status == 503
    assert {upload.status for upload in whole} == {202}


async def test_a_length_of_thousands_of_digits_is_malformed(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    for digits in ("0" * 5000 + "5", "9" * 5000):
        problem(await stand.post(content_length=digits), 400, "malformed")

    assert "Traceback" not in capsys.readouterr().out
    assert stand.counted("hookyard_events_refused_total", partner="", reason="unexpected") == 0


async def test_a_defect_that_a_sender_has_found_fills_no_log(stand: Stand) -> None:
    def fail(arrival: Arrival) -> Answer:
        raise RuntimeError("bug")

    stand.log.say = fail
    with structlog.testing.capture_logs() as logged:
        for _ in range(20):
            assert (await stand.post()).status_code == 503
        stand.now += 11
        await stand.post()

    assert [(line["event"], line["untold"]) for line in logged] == [("ingest.unexpected", 0), ("ingest.unexpected", 19)]
    assert stand.counted("hookyard_events_refused_total", partner="", reason="unexpected") == 21


async def test_once_it_is_stopping_nothing_is_taken_on(stand: Stand) -> None:
    stand.stopping, stand.health = True, Health(storing=False, amiss=("stopping",))

    answer = await stand.post()

    problem(answer, 503, "stopping")
    assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")
    assert (await stand.client.get("/health/live")).status_code == 200
    assert (await stand.client.get("/health/ready")).json()["amiss"] == ["stopping"]
    assert not stand.log.arrivals


async def test_a_sender_that_leaves_in_mid_upload_stores_nothing(stand: Stand) -> None:
    messages = [{"type": "http.request", "body": b"half", "more_body": True}, {"type": "http.disconnect"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/in/acme", "query_string": b"", "headers": []}
    await stand.edge(scope, receive, send)

    assert not sent
    assert not stand.log.arrivals
    assert stand.counted("hookyard_events_refused_total", partner="acme", reason="disconnected") == 1


async def test_a_request_cut_off_by_the_end_of_the_drain_is_told_503(stand: Stand) -> None:
    sent: list[Any] = []
    waiting = asyncio.Event()

    async def receive() -> Any:
        waiting.set()
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/in/acme", "query_string": b"", "headers": []}
    task = asyncio.create_task(stand.edge(scope, receive, send))
    await waiting.wait()
    task.cancel()
    await task

    assert sent[0]["status"] == 503
    assert json.loads(sent[1]["body"])["reason"] == "unavailable"


async def test_health_tells_whether_events_can_be_stored(stand: Stand) -> None:
    assert (await stand.client.get("/health/live")).json() == {"status": "live"}
    assert (await stand.client.get("/health/ready")).json() == {"status": "ready", "amiss": []}

    stand.health = Health(storing=True, amiss=("redis away",))
    degraded = await stand.client.get("/health/ready")
    assert (degraded.status_code, degraded.json()["status"]) == (200, "degraded")

    stand.health = Health(storing=False, amiss=("database away",))
    unready = await stand.client.get("/health/ready")
    assert (unready.status_code, unready.json()) == (503, {"status": "unready", "amiss": ["database away"]})
    assert (await stand.client.get("/health/live")).status_code == 200


async def test_metrics_never_show_on_the_public_edge(stand: Stand) -> None:
    problem(await stand.client.get("/metrics"), 404, "not_found")


def test_the_empty_snapshot_is_the_version_before_the_first() -> None:
    assert isinstance(EMPTY, Snapshot)
    assert EMPTY.version == 0
