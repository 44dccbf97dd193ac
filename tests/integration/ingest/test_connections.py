"""The public edge on real sockets: hostile framing, slow senders, limits, and the end of a process."""

import asyncio
import functools
import json
import os
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from domain.events import unpack_headers
from domain.verification import schemes
from ingest.app import Edge
from ingest.health import Health, health_app
from ingest.limits import Limits
from ingest.metrics import NOBODY, IngestMetrics
from ingest.serving import serve
from storage.log import Answer, Arrival
from tests.edge_stand import ACME, RECEIVED_AT, FakeConfiguration, FakeLog
from tests.raw_http import ask, chunked, exchange, head, post, read_answer

LIMITS = Limits(
    head_seconds=1.5, body_rate=1000, patience_seconds=2.0, answer_seconds=1.0, keep_alive_seconds=5, drain_seconds=4
)

UNCLEAR = [
    head("/in/acme", "content-length: 3", "transfer-encoding: chunked") + b"3\r\nabc\r\n0\r\n\r\n",
    head("/in/acme", "content-length: 3", "content-length: 4") + b"abcd",
    head("/in/acme", "content-length: 3, 3") + b"abc",
    head("/in/acme", "content-length: -3") + b"abc",
    head("/in/acme", "content-length: +3") + b"abc",
    head("/in/acme", "content-length: 99999999999999999999999") + b"abc",
    head("/in/acme", "content-length: " + "0" * 5000 + "3") + b"abc",
    head("/in/acme", "content-length : 3") + b"abc",
    head("/in/acme", "transfer-encoding: gzip, chunked") + b"3\r\nabc\r\n0\r\n\r\n",
    head("/in/acme", "transfer-encoding: xchunked") + b"3\r\nabc\r\n0\r\n\r\n",
    head("/in/acme", "transfer-encoding: identity") + b"abc",
    head("/in/acme", "transfer-encoding: chunked") + b"zz\r\nabc\r\n0\r\n\r\n",
    head("/in/acme", "transfer-encoding: chunked") + b"-3\r\nabc\r\n0\r\n\r\n",
    head("/in/acme", "transfer-encoding: chunked") + b"3\r\nabc\r\nXX\r\n\r\n",
    head("/in/acme", "transfer-encoding: chunked") + b"3\r\nabcd\r\n0\r\n\r\n",
    head("/in/acme", "x-a: 1\r\n two", "content-length: 0"),
    head("/in/acme", "x-a: 1\rx-b: 2", "content-length: 0"),
    head("/in/acme", "x-a: 1\n two", "content-length: 0"),
    head("/in/acme", "x-a: 1\0", "content-length: 0"),
    head("/in/acme", "x-a: 1\x01", "content-length: 0"),
    head("/in/acme", "content-length: 0", method="post"),
    head("/in/é", "content-length: 0"),
    b"POST /in/acme HTTP/1.1\nhost: x\ncontent-length: 0\n\n",
    b"POST /in/acme HTTP/9.9\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n",
    bytes.fromhex("16030102000100") + bytes(50),
    b"\r\n\r\n\0garbage",
]


class Stand:
    """An edge that listens, on a stand-in for the log."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.registry = CollectorRegistry()
        self.log = FakeLog()
        self.stop = asyncio.Event()
        self.metrics = IngestMetrics(self.registry)
        configuration = FakeConfiguration(
            replace(ACME, max_body=100_000), replace(ACME, id=2, name="big", max_body=5 << 20)
        )
        rest = health_app(lambda: Health(storing=True))
        self.edge = Edge(
            self.log, configuration, schemes(), self.metrics, rest, limits, time.time, self.stop.is_set
        )  # fmt: skip
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        refused = functools.partial(self.metrics.refuse, NOBODY)
        self.serving = asyncio.create_task(serve(self.edge, [self.socket], limits, self.stop, refused))

    def counted(self, reason: str, partner: str = "") -> float:
        labels = {"partner": partner, "reason": reason}
        return self.registry.get_sample_value("hookyard_events_refused_total", labels) or 0

    async def close(self) -> None:
        self.stop.set()
        await self.serving


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    stand = Stand()
    yield stand
    await stand.close()
    assert (stand.edge.in_flight, stand.edge.held_bytes) == (0, 0)


def is_problem(answer: Any, status: int, reason: str) -> None:
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.json["status"], answer.json["reason"]) == (status, reason)


async def test_what_is_no_clear_http_is_refused_and_stores_nothing(stand: Stand) -> None:
    conversations = await asyncio.gather(*(exchange(stand.port, request) for request in UNCLEAR))

    for request, answers in zip(UNCLEAR, conversations, strict=True):
        assert len(answers) == 1, request
        is_problem(answers[0], 400, "malformed")
        assert answers[0].headers["connection"] == "close"
    assert not stand.log.arrivals


async def test_chunks_are_put_together_whatever_their_sizes_and_extensions(stand: Stand) -> None:
    whole = bytes(range(256)) * 100

    for framed in (chunked(whole, 1), chunked(whole, 7777), b"3;a=b\r\n" + whole[:3] + b"\r\n" + chunked(whole[3:])):
        assert (await ask(stand.port, head("/in/acme", "transfer-encoding: chunked") + framed)).status == 202

    assert [arrival.body for arrival in stand.log.arrivals] == [whole] * 3


async def test_a_trailer_never_becomes_a_header(stand: Stand) -> None:
    framed = b"3\r\nabc\r\n0\r\nwebhook-id: forged\r\nx-sum: 1\r\n\r\n"

    answer = await ask(stand.port, head("/in/acme", "transfer-encoding: chunked", "trailer: x-sum") + framed)

    assert answer.status == 202
    (arrival,) = stand.log.arrivals
    assert {name for name, _ in unpack_headers(arrival.headers)} == {b"host", b"transfer-encoding", b"trailer"}
    assert arrival.digest is None


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (head("/in/acme", "x-a: " + "a" * 70_000, "content-length: 0"), 431),
        (head("/in/acme", "x-a: " + "a" * 5_000_000, "content-length: 0"), 431),
        (head("/in/acme", *[f"x-{n}: 1" for n in range(20_000)], "content-length: 0"), 431),
        (head("/in/" + "n" * 1_000_000, "content-length: 0"), 431),
        (head("/in/acme", "transfer-encoding: chunked") + b"3;" + b"x" * 2_000_000 + b"\r\nabc\r\n0\r\n\r\n", 400),
        (head("/in/acme", "transfer-encoding: chunked") + b"0\r\n" + b"x-t: 1\r\n" * 50_000 + b"\r\n", 431),
    ],
    ids=["long header", "huge header", "many headers", "huge target", "huge chunk extension", "huge trailer"],
)
async def test_what_surrounds_a_body_is_bounded(stand: Stand, request_bytes: bytes, status: int) -> None:
    answer = await ask(stand.port, request_bytes)

    assert answer.status in (status, 0)  # a sender in mid-flood may see the reset before the answer
    assert stand.counted("head_too_large" if status == 431 else "malformed") == 1
    assert not stand.log.arrivals
    assert (await ask(stand.port, post("/in/acme", b"{}"))).status == 202


async def test_expect_100_continue_is_answered_at_once_if_the_body_may_come(stand: Stand) -> None:
    body = os.urandom(2_000_000)
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.port)
    writer.write(head("/in/big", "expect: 100-continue", f"content-length: {len(body)}"))

    async with asyncio.timeout(1):
        assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        await reader.readline()
    writer.write(body)
    answer = await read_answer(reader)
    writer.close()

    assert answer.status == 202
    assert stand.log.arrivals[0].body == body


async def test_a_body_that_is_too_large_is_refused_without_asking_for_it(stand: Stand) -> None:
    answers = await exchange(stand.port, head("/in/acme", "expect: 100-continue", "content-length: 200000"))

    is_problem(answers[0], 413, "too_large")
    assert answers[0].headers["connection"] == "close"


@pytest.mark.parametrize("framing", ["content-length: 20000000", "transfer-encoding: chunked"])
async def test_a_sender_in_mid_upload_can_read_the_refusal(stand: Stand, framing: str) -> None:
    body = b"x" * 20_000_000
    sent = body if framing.startswith("content") else chunked(body, 50_000)

    is_problem(await ask(stand.port, head("/in/acme", framing) + sent), 413, "too_large")

    assert stand.edge.held_bytes == 0


def upload_blindly(port: int, request: bytes) -> bytes:
    """As many clients do: sends everything first, then looks for an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request)
        return connection.recv(4096)


async def test_a_sender_that_reads_only_after_its_upload_can_read_the_refusal_too(stand: Stand) -> None:
    request = head("/in/acme", "content-length: 6000000") + b"x" * 6_000_000

    answer = await asyncio.to_thread(upload_blindly, stand.port, request)

    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_an_endless_chunked_upload_is_cut_soon_after_the_limit(stand: Stand) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.port)
    answer = asyncio.create_task(read_answer(reader))
    writer.write(head("/in/acme", "transfer-encoding: chunked"))
    sent = 0
    try:
        async with asyncio.timeout(10):
            while sent < 1 << 30:
                writer.write(chunked(b"x" * 50_000, 50_000, end=False))
                sent += 50_000
                await writer.drain()
                await asyncio.sleep(0)
    except ConnectionError:
        pass

    is_problem(await answer, 413, "too_large")
    assert sent < 32 << 20
    writer.close()


async def test_a_connection_stays_open_after_an_answer_and_a_short_refusal(stand: Stand) -> None:
    requests = [
        post("/in/acme", b"1"),
        post("/in/nobody", b"x"),
        head("/in/acme", method="GET"),
        post("/in/acme", b"2"),
    ]

    answers = await exchange(stand.port, b"".join(requests))

    assert [answer.status for answer in answers] == [202, 404, 405, 202]
    assert [arrival.body for arrival in stand.log.arrivals] == [b"1", b"2"]


@pytest.mark.parametrize("garbage", [b"garbage\r\n\r\n", b"\0", post("/in/acme", b"2") + b"\0"])
async def test_what_came_whole_is_answered_although_garbage_follows(stand: Stand, garbage: bytes) -> None:
    answers = await exchange(stand.port, post("/in/acme", b"1") + garbage)

    whole = [b"1", b"2"] if b"acme" in garbage else [b"1"]
    assert [answer.status for answer in answers] == [202 for _ in whole]
    assert answers[-1].headers["connection"] == "close"
    assert [arrival.body for arrival in stand.log.arrivals] == whole


@pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
async def test_an_upgrade_is_ignored(stand: Stand, upgrade: str) -> None:
    answer = await ask(stand.port, post("/in/acme", b"abc", "connection: upgrade", f"upgrade: {upgrade}"))

    assert answer.status == 202
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("target", ["/in/%61cme", "http://edge.test/in/acme", "/in/acme?x=%00&y"])
async def test_a_partner_is_found_by_any_spelling_of_its_path(stand: Stand, target: str) -> None:
    assert (await ask(stand.port, post(target, b"{}"))).status == 202


async def test_the_answer_tells_nothing_about_the_server(stand: Stand) -> None:
    answer = await ask(stand.port, post("/in/acme", b"{}"))

    assert set(answer.headers) == {"content-type", "content-length"}


async def test_a_head_that_never_ends_is_cut(stand: Stand) -> None:
    began = time.monotonic()
    answers = await asyncio.gather(
        ask(stand.port, b"POST /in/acme HTTP/1.1\r\nhost:", timeout=8),
        ask(stand.port, *[b"x-a: 1\r\n" if n else b"POST /in/acme HTTP/1.1\r\n" for n in range(3)], timeout=8),
    )

    for answer in answers:
        is_problem(answer, 408, "too_slow")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("sent", [b"", b"\r\n\r\n"])
async def test_a_connection_without_a_request_is_closed(stand: Stand, sent: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.port)
    writer.write(sent)

    async with asyncio.timeout(6):
        await reader.read()
    writer.close()


async def test_slow_senders_are_cut_and_do_not_slow_down_others(stand: Stand) -> None:
    drip = [b"." if n % 2 else 0.4 for n in range(40)]
    slow = [
        asyncio.create_task(ask(stand.port, head("/in/acme", "content-length: 5000"), *drip, timeout=14))
        for _ in range(150)
    ]
    await asyncio.sleep(0.5)

    took = []
    for _ in range(50):
        began = time.monotonic()
        assert (await ask(stand.port, post("/in/acme", b"{}", "connection: close"))).status == 202
        took.append(time.monotonic() - began)

    assert sorted(took)[45] < 0.5
    for answer in await asyncio.gather(*slow):
        is_problem(answer, 408, "too_slow")
    assert {arrival.body for arrival in stand.log.arrivals} == {b"{}"}


async def test_a_slow_sender_above_the_least_rate_is_heard_out(stand: Stand) -> None:
    pieces = [b"x" * 1000 if n % 2 else 0.3 for n in range(22)]

    answer = await ask(stand.port, head("/in/acme", "content-length: 11000"), *pieces)

    assert answer.status == 202


@pytest.mark.parametrize("framing", ["content-length: 99000", "transfer-encoding: chunked"])
async def test_an_early_burst_buys_no_long_silence(stand: Stand, framing: str) -> None:
    burst = b"x" * 98_000 if "length" in framing else chunked(b"x" * 98_000, end=False)
    began = time.monotonic()

    answer = await ask(stand.port, head("/in/acme", framing), burst, 20.0)

    is_problem(answer, 408, "too_slow")
    assert time.monotonic() - began < 5


async def test_silent_uploads_of_all_the_memory_there_is_keep_nobody_out() -> None:
    stand = Stand(replace(LIMITS, body_bytes=1_000_000, patience_seconds=30))
    silent = [
        asyncio.create_task(ask(stand.port, head("/in/acme", "content-length: 99001"), b"x" * 99_000, 20.0, timeout=30))
        for _ in range(10)
    ]
    async with asyncio.timeout(5):
        while stand.edge.held_bytes < 990_000:
            await asyncio.sleep(0.01)

    answers = [await ask(stand.port, post(f"/in/{name}", b"y" * 90_000)) for name in ("big", "acme", "big", "acme")]

    assert [answer.status for answer in answers] == [202] * 4
    is_problem(await silent[0], 503, "overloaded")
    assert stand.counted("overloaded", "acme") == 1
    assert not silent[9].done()
    for task in silent:
        task.cancel()
    await stand.close()
    assert stand.edge.held_bytes == 0


async def test_beyond_the_bound_of_connections_a_newcomer_is_told_so() -> None:
    stand = Stand(replace(LIMITS, connections=5))
    uploads = [await asyncio.open_connection("127.0.0.1", stand.port) for _ in range(5)]

    async def upload() -> None:
        while True:
            for _, writer in uploads:
                writer.write(b"x" * 500)
            await asyncio.sleep(0.2)

    for _, writer in uploads:
        writer.write(head("/in/big", "content-length: 4000000"))
    uploading = asyncio.create_task(upload())
    await asyncio.sleep(0.3)

    answer = await ask(stand.port, 0.5)

    is_problem(answer, 503, "overloaded")
    assert answer.headers["retry-after"] == "1"
    uploading.cancel()
    for _, writer in uploads:
        writer.close()
    while (await ask(stand.port, post("/in/acme", b"{}"))).status != 202:
        await asyncio.sleep(0.05)
    await stand.close()


async def test_the_longest_silent_sender_gives_its_place_to_a_newcomer() -> None:
    stand = Stand(replace(LIMITS, connections=4, head_seconds=30, patience_seconds=30))
    half = head("/in/acme", "content-length: 9") + b"x"
    beginnings = [b"", b"POST /in/acme HTTP/1.1\r\nhost: ", post("/in/acme", b"idle"), half]
    silent = []
    for sent in beginnings:
        silent.append(await asyncio.open_connection("127.0.0.1", stand.port))
        silent[-1][1].write(sent)
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)

    answers = []
    for _ in beginnings:
        silent.append(await asyncio.open_connection("127.0.0.1", stand.port))
        silent[-1][1].write(post("/in/acme", b"{}"))
        answers.append(await read_answer(silent[-1][0]))

    assert [answer.status for answer in answers] == [202] * 4
    told = [await read_answer(reader) for reader, _ in silent[:4]]
    assert [answer.status for answer in told] == [0, 503, 202, 503]
    assert [answer.headers.get("retry-after") for answer in told] == [None, "1", None, "1"]
    for _, writer in silent:
        writer.close()
    await stand.close()


async def ask_without_end(port: int) -> None:
    """Sends request after request and fetches no answer, until the connection is reset."""
    loop = asyncio.get_running_loop()
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        await loop.sock_connect(deaf, ("127.0.0.1", port))
        while True:
            await loop.sock_sendall(deaf, head("/nowhere", method="GET") * 20)


async def test_requests_that_come_before_the_answers_are_taken_in_turn_and_bounded(stand: Stand) -> None:
    some = await exchange(stand.port, b"".join(post("/in/acme", b"%d" % n) for n in range(64)))
    too_many = await exchange(stand.port, post("/in/acme", b"x") * 1000)

    assert [answer.json["sequence"] for answer in some] == list(range(1, 65))
    assert [answer.json["sequence"] for answer in too_many] == list(range(65, 65 + len(too_many)))
    assert 64 <= len(too_many) <= 200
    assert too_many[-1].headers["connection"] == "close"
    assert len(stand.log.arrivals) == 64 + len(too_many)


async def test_who_fetches_no_answers_is_cut_off(stand: Stand) -> None:
    stand.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    async with asyncio.timeout(10):
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            await ask_without_end(stand.port)


async def test_who_fetches_no_answers_holds_up_no_stop() -> None:
    stand = Stand(replace(LIMITS, answer_seconds=100, drain_seconds=2))
    stand.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    asking = asyncio.create_task(ask_without_end(stand.port))
    await asyncio.sleep(1)

    await asyncio.wait_for(stand.close(), 4)

    with pytest.raises(OSError, match=r"reset|Broken pipe"):
        await asyncio.wait_for(asking, 2)
    assert not [task for task in asyncio.all_tasks() if "run_asgi" in repr(task)]


async def test_a_stop_lets_uploads_end_and_tells_the_rest_503(stand: Stand) -> None:
    ends = ask(stand.port, head("/in/acme", "content-length: 6"), b"abc", 1.0, b"def")
    too_late = ask(stand.port, head("/in/acme", "content-length: 6"), b"abc", 30.0, b"def")
    uploads = [asyncio.create_task(ends), asyncio.create_task(too_late)]
    idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", stand.port)
    idle_writer.write(post("/in/acme", b"idle"))
    assert (await read_answer(idle_reader)).status == 202
    await asyncio.sleep(0.3)

    began = time.monotonic()
    stand.stop.set()
    await stand.serving

    assert time.monotonic() - began < LIMITS.drain_seconds
    ended, refused = await asyncio.gather(*uploads)
    assert (ended.status, ended.headers["connection"]) == (202, "close")
    assert refused.status in (503, 408)
    assert await idle_reader.read() == b""
    assert {arrival.body for arrival in stand.log.arrivals} == {b"abcdef", b"idle"}
    idle_writer.close()
    with pytest.raises(OSError, match="refused"):
        await asyncio.open_connection("127.0.0.1", stand.port)


async def test_until_the_drain_ends_newcomers_are_told_503(stand: Stand) -> None:
    begun = asyncio.create_task(ask(stand.port, head("/in/acme", "content-length: 6"), b"abc", 1.2, b"def"))
    idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", stand.port)
    half_reader, half_writer = await asyncio.open_connection("127.0.0.1", stand.port)
    half_writer.write(b"POST /in/acme HTTP/1.1\r\n")
    await asyncio.sleep(0.3)

    stand.stop.set()
    for _ in range(8):
        answer = await ask(stand.port, post("/in/acme", b"late"))
        is_problem(answer, 503, "stopping")
        assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")
        await asyncio.sleep(0.05)
    idle_writer.write(post("/in/acme", b"late"))
    half_writer.write(b"host: x\r\ncontent-length: 4\r\n\r\nlate")

    is_problem(await read_answer(idle_reader), 503, "stopping")
    is_problem(await read_answer(half_reader), 503, "stopping")
    assert (await begun).status == 202
    await asyncio.wait_for(stand.serving, 2)
    assert {arrival.body for arrival in stand.log.arrivals} == {b"abcdef"}
    for writer in (idle_writer, half_writer):
        writer.close()


async def test_a_sender_that_leaves_before_the_answer_does_no_harm(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    committed = asyncio.Event()
    release = asyncio.Event()

    async def accept(arrival: Arrival) -> Answer:
        committed.set()
        await release.wait()
        return Answer("stored", 1, RECEIVED_AT, False, None)

    real, stand.log.accept = stand.log.accept, accept  # type: ignore[method-assign]
    _, writer = await asyncio.open_connection("127.0.0.1", stand.port)
    writer.write(post("/in/acme", b"1") + post("/in/acme", b"2"))
    await committed.wait()
    writer.transport.abort()
    await asyncio.sleep(0.1)
    release.set()
    stand.log.accept = real  # type: ignore[method-assign]

    assert (await ask(stand.port, post("/in/acme", b"{}"))).status == 202
    while stand.edge.in_flight:
        await asyncio.sleep(0.01)
    assert not caplog.records


async def test_health_is_told_on_the_public_edge(stand: Stand) -> None:
    answer = await ask(stand.port, head("/health/ready", method="GET"))

    assert (answer.status, json.loads(answer.body)["status"]) == (200, "ready")
    is_problem(await ask(stand.port, head("/metrics", method="GET")), 404, "not_found")
