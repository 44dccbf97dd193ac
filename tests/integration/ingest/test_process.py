"""Whole ingest processes on a real database: numbering, deduplication, outages, and the end."""

import asyncio
import gzip
import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from domain.events import place_of, unpack_headers
from domain.verification import Draft, find_scheme
from ingest import serving
from ingest.limits import Limits
from ingest.protocol import EdgeProtocol
from ingest.server import CannotBind, Ingest, IngestConfig, run
from storage import loops, partners
from storage.schema import migrate
from storage.secrets import CannotOpen, Vault
from storage.transactions import Store
from tests.chaos.line import through
from tests.ingest_process import MASTER_KEY
from tests.raw_http import Answer, ask, chunked, head, post
from tests.servers import Servers

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODIES = [
    rb'{"a":"x\u0000y"}', rb'{"a":"\ud800"}', rb'{"a":"\\u0000"}', rb'{"\u0000":"\udfff\ud800"}',
    b'{"id":7615917337495251231,"w":18446744073709551617,"f":0.10000000000000000555,"e":1E400}',
    b'{"a":NaN,"b":-Infinity,"c":-0.0,"e":0123}', b'{"type":"a","type":"b"}', b' { "b":1 ,\r\n\t"a":1.0 } \n',
    b"", b"\0", b"\xff\xfe\x00", b'{"a":"\xe9\xc3"}', bytes(range(256)), b"[" * 100_000,
    gzip.compress(b"\0" * 1_000_000),
    b"payload=%7B%22x%22%3A1%7D&=&&+", b'--B\r\nContent-Disposition: form-data; name="f"\r\n\r\n\x00\xff\r\n--B--\r\n',
]  # fmt: skip


def add_partner(database_url: str, name: str, *secrets: str, **options: Any) -> None:
    store = Store(database_url)
    vault = Vault([MASTER_KEY])
    store.run(lambda connection: partners.add(connection, vault, name, options, secrets, actor="test"))  # type: ignore[arg-type]
    store.close()


def stored(database_url: str) -> list[tuple[Any, ...]]:
    """Every event: sequence, type, headers, query, body."""
    with psycopg.connect(database_url) as connection:
        return connection.execute(
            "SELECT seq, type, headers, query, body FROM events ORDER BY partner_id, seq"
        ).fetchall()


class Running:
    """An ingest in this process, with its own connections to the database."""

    def __init__(self, config: IngestConfig, door: socket.socket) -> None:
        self.stop = asyncio.Event()
        self.port: int = door.getsockname()[1]
        self.task = asyncio.create_task(run(config, self.stop))

    async def post(self, body: bytes = b"{}", *lines: str, partner: str = "acme") -> Answer:
        return await ask(self.port, post(f"/in/{partner}", body, "connection: close", *lines), timeout=20)

    async def health(self) -> tuple[int, dict[str, Any]]:
        answer = await ask(self.port, head("/health/ready", "connection: close", method="GET"))
        return answer.status, json.loads(answer.body)


@asynccontextmanager
async def ingest(
    database_url: str, redis_url: str, *, key: bytes = MASTER_KEY, ready: bool = True
) -> AsyncIterator[Running]:
    door = socket.create_server(("127.0.0.1", 0))
    config = IngestConfig(database_url, redis_url, [key], fd=door.detach(), limits=Limits(drain_seconds=4))
    with socket.socket(fileno=os.dup(config.fd or 0)) as copy:
        running = Running(config, copy)
    try:
        if ready:
            await until(lambda: is_ready(running))
        yield running
    finally:
        running.stop.set()
        await running.task


async def is_ready(running: Running) -> bool:
    return (await running.health())[0] == 200


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not await holds():
            await asyncio.sleep(0.05)


async def test_bodies_that_break_others_are_stored_as_they_came(database_url: str, redis_url: str) -> None:
    add_partner(database_url, "acme", order_key="json:/a", dedupe="json:/id")
    async with ingest(database_url, redis_url) as edge:
        for body in BODIES:
            assert (await edge.post(body)).status == 202
            answer = await ask(edge.port, head("/in/acme?q=%00", "transfer-encoding: chunked") + chunked(body, 700))
            assert answer.status == 202

    assert [row[4] for row in stored(database_url)] == [
        body for body in BODIES for _ in range(1 if b'"id"' in body else 2)
    ]  # fmt: skip


async def test_headers_query_and_type_are_stored_with_the_event(database_url: str, redis_url: str) -> None:
    add_partner(database_url, "acme")
    async with ingest(database_url, redis_url) as edge:
        raw = post(
            "/in/acme?a=1&a=%20",
            b'{"type":"order.created"}',
            "X-Meta: \xe9t\xe9",
            "Cookie: secret",
            "X-Dup: 1",
            "X-Dup: 2",
        )
        answer = await ask(edge.port, raw)

    ((sequence, kind, headers, query, _),) = stored(database_url)
    assert (sequence, kind, query) == (1, "order.created", b"a=1&a=%20")
    assert place_of(answer.json["event"]).sequence == 1
    kept = unpack_headers(headers)
    assert (b"x-meta", b"\xe9t\xe9") in kept
    assert [value for name, value in kept if name == b"x-dup"] == [b"1", b"2"]
    assert b"secret" not in headers


async def test_fifty_identical_posts_at_once_to_two_processes_are_one_event(database_url: str, redis_url: str) -> None:
    add_partner(database_url, "acme")
    async with ingest(database_url, redis_url) as one, ingest(database_url, redis_url) as two:
        edges = [one, two] * 25
        answers = await asyncio.gather(*(edge.post(b'{"type":"once"}', "webhook-id: msg_once") for edge in edges))

    assert {answer.status for answer in answers} == {202}
    assert len({answer.json["event"] for answer in answers}) == 1
    assert {answer.json["sequence"] for answer in answers} == {1}
    assert sum(not answer.json["duplicate"] for answer in answers) == 1
    assert len(stored(database_url)) == 1


async def test_two_processes_number_one_partner_without_gaps_and_in_the_order_of_their_answers(
    database_url: str, redis_url: str
) -> None:
    add_partner(database_url, "acme")
    add_partner(database_url, "other")
    async with ingest(database_url, redis_url) as one, ingest(database_url, redis_url) as two:
        after: list[tuple[int, int]] = []  # the newest number known when a POST was sent, and the POST's own

        async def sender(number: int) -> None:
            chance = random.Random(number)
            for _ in range(10):
                known = max((own for _, own in after), default=0)
                edge, partner = chance.choice([one, two]), "acme" if number % 5 else "other"
                answer = await edge.post(b"{}", f"webhook-id: {number}-{chance.random()}", partner=partner)
                assert answer.status == 202
                if partner == "acme":
                    after.append((known, answer.json["sequence"]))

        await asyncio.gather(*(sender(number) for number in range(30)))

    assert sorted(own for _, own in after) == list(range(1, 241))
    assert all(known < own for known, own in after)


async def test_a_partner_made_or_changed_at_run_time_is_known_within_two_seconds(
    database_url: str, redis_url: str
) -> None:
    add_partner(database_url, "first")
    async with ingest(database_url, redis_url) as edge:
        assert (await edge.post()).status == 404
        add_partner(database_url, "acme", SECRET, verify="standard")
        await until(lambda: answers(edge, 401), 2)

        signed = find_scheme("standard").sign(Draft(b"{}", SECRET, {}, time.time(), "m1", None))
        assert (await edge.post(b"{}", *[f"{name}: {value}" for name, value in signed])).status == 202


async def answers(edge: Running, status: int) -> bool:
    return (await edge.post()).status == status


async def test_a_full_backlog_is_a_429_for_that_partner_alone(database_url: str, redis_url: str) -> None:
    add_partner(database_url, "acme", max_backlog=3)
    add_partner(database_url, "other")
    async with ingest(database_url, redis_url) as edge:
        told = [await edge.post() for _ in range(5)]
        assert (await edge.post(partner="other")).status == 202

    assert [answer.status for answer in told] == [202, 202, 202, 429, 429]
    assert told[-1].json["reason"] == "backlog_full"
    assert 0 < int(told[-1].headers["retry-after"]) <= 86_400


async def test_while_the_database_is_away_nothing_is_acknowledged(own_servers: Servers) -> None:
    url = own_servers.url_of("hookyard")
    migrate(url)
    add_partner(url, "acme")
    async with ingest(url, own_servers.redis_url) as edge:
        assert (await edge.post(b"1")).status == 202

        await asyncio.to_thread(own_servers.stop_postgres)
        told = await asyncio.gather(*(edge.post(b"2", "webhook-id: m2") for _ in range(5)))
        assert {answer.status for answer in told} == {503}
        assert all(int(answer.headers["retry-after"]) > 0 for answer in told)
        assert (await edge.health()) == (503, {"status": "unready", "amiss": ["database away"]})

        await asyncio.to_thread(own_servers.start_postgres)
        await until(lambda: is_ready(edge))
        assert (await edge.post(b"2", "webhook-id: m2")).status == 202
    assert [row[4] for row in stored(url)] == [b"1", b"2"]


async def test_a_commit_whose_answer_was_lost_is_one_event_when_its_sender_comes_again(
    database_url: str, redis_url: str
) -> None:
    add_partner(database_url, "acme")
    async with through(database_url) as (line, url), ingest(url, redis_url) as edge:
        assert (await edge.post(b"1")).status == 202

        line.loses_answer_to(b"in doubt")
        told = await edge.post(b"in doubt", "webhook-id: m2")
        assert (line.lost, told.status, int(told.headers["retry-after"]) > 0) == (1, 503, True)
        assert [row[4] for row in stored(database_url)] == [b"1", b"in doubt"]

        again = await edge.post(b"in doubt", "webhook-id: m2")
        assert (again.status, again.json["sequence"], again.json["duplicate"]) == (202, 2, True)
        assert (await edge.post(b"3")).json["sequence"] == 3
    assert [row[4] for row in stored(database_url)] == [b"1", b"in doubt", b"3"]


async def test_without_redis_events_are_stored_and_health_says_degraded(own_servers: Servers) -> None:
    url = own_servers.url_of("hookyard")
    migrate(url)
    add_partner(url, "acme")
    async with ingest(url, own_servers.redis_url) as edge:
        await asyncio.to_thread(own_servers.stop_valkey)

        began = time.monotonic()
        assert [(await edge.post()).status for _ in range(10)] == [202] * 10
        assert time.monotonic() - began < 2

        async def degraded() -> bool:
            return await edge.health() == (200, {"status": "degraded", "amiss": ["redis away"]})

        await until(degraded)


async def test_started_before_its_database_it_calls_nobody_unknown(own_servers: Servers) -> None:
    url = own_servers.url_of("hookyard")
    async with ingest(url, own_servers.redis_url, ready=False) as edge:
        await until(lambda: answers(edge, 503))
        assert (await edge.health())[0] == 503

        migrate(url)
        add_partner(url, "acme")
        await until(lambda: is_ready(edge))
        await until(lambda: answers(edge, 202), 2)


async def test_wrong_master_keys_stop_the_process(database_url: str, redis_url: str) -> None:
    add_partner(database_url, "acme", SECRET, verify="standard")

    with pytest.raises(CannotOpen):
        async with ingest(database_url, redis_url, key=b"w" * 32, ready=False) as edge:
            await asyncio.wait_for(asyncio.shield(edge.task), 10)


@pytest.mark.parametrize(
    ("loop", "where", "name"),
    [
        ("watch", Ingest, "_show"),
        ("sweep", EdgeProtocol, "enforce"),
        ("door for health", serving, "serve"),
    ],
)
async def test_what_goes_on_beside_the_edge_begins_again_when_it_dies(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch, loop: str, where: Any, name: str
) -> None:
    monkeypatch.setattr(loops, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(loops, "STEADY_SECONDS", 1.5)
    monkeypatch.setattr(serving, "SWEEP_SECONDS", 0.1)
    real, is_broken, calls = getattr(where, name), True, 0

    def breaks(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if is_broken:
            raise ValueError("a defect")
        return real(*given, **named)

    monkeypatch.setattr(where, name, breaks)
    add_partner(database_url, "acme")
    async with ingest(database_url, redis_url) as edge:
        _, idle = await asyncio.open_connection("127.0.0.1", edge.port)
        await until(lambda: says(edge, "degraded", f"{loop} failing"))
        assert (await edge.post()).status == 202

        is_broken, broken_calls = False, calls
        await until(lambda: says(edge, "ready"))
        assert calls > broken_calls
        idle.close()


async def says(edge: Running, status: str, *amiss: str) -> bool:
    return await edge.health() == (200, {"status": status, "amiss": list(amiss)})


async def test_an_address_that_is_taken_is_named(database_url: str, redis_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotBind, match=f"cannot listen on 127.0.0.1:{port}: .*in use"):
            await run(IngestConfig(database_url, redis_url, [MASTER_KEY], port=port))


async def test_metrics_and_health_are_served_beside_the_edge(database_url: str, redis_url: str, tmp_path: Path) -> None:
    add_partner(database_url, "acme")
    door = socket.create_server(("127.0.0.1", 0))
    port = door.getsockname()[1]
    path = tmp_path / "health.sock"
    config = IngestConfig(database_url, redis_url, [MASTER_KEY], fd=door.detach(), health_socket=path)
    stop = asyncio.Event()
    task = asyncio.create_task(run(config, stop))

    async def beside(target: str) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(head(target, "connection: close", method="GET"))
        answer = await reader.read()
        writer.close()
        return answer

    async def ready() -> bool:
        return path.exists() and b" 200 " in (await beside("/health/ready"))[:20]

    await until(ready)
    for _ in range(3):
        assert (await ask(port, post("/in/acme", b"{}", "connection: close"))).status == 202
    text = await beside("/metrics")
    assert b'hookyard_events_accepted_total{partner="acme"} 3.0' in text
    assert b'hookyard_queue_capacity{queue="ingest_commit"}' in text
    assert b"hookyard_commit_batch_size_count" in text
    stop.set()
    await task


async def test_sigterm_ends_a_process_in_time_and_every_upload_knows_its_fate(
    database_url: str, redis_url: str
) -> None:
    add_partner(database_url, "acme")
    door = socket.create_server(("127.0.0.1", 0))
    port = door.getsockname()[1]
    door.set_inheritable(True)
    script = Path(__file__).parents[2] / "ingest_process.py"
    arguments = [str(script), database_url, redis_url, str(door.fileno()), "5"]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, pass_fds=[door.fileno()])
    door.close()

    async def ready() -> bool:
        return (await ask(port, head("/health/ready", "connection: close", method="GET"))).status == 200

    await until(ready)
    body = b'{"pad":"' + b"u" * 900 + b'"}'
    start = head("/in/acme", f"content-length: {len(body)}") + body[:100]
    uploads = [asyncio.create_task(ask(port, start, 0.3 + n * 0.2, body[100:])) for n in range(30)]
    await asyncio.sleep(0.5)

    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    code = await process.wait()
    fates = [answer.status for answer in await asyncio.gather(*uploads)]

    assert code == 0
    assert time.monotonic() - began < 6
    assert set(fates) <= {202, 503, 0}
    assert fates.count(202) >= 10
    assert len(stored(database_url)) == fates.count(202)
