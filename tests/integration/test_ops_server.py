"""The ops role over HTTP: who may come in, what it says of the system's health, and what it counts."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import threading
import warnings
from collections.abc import AsyncIterator, Callable
from itertools import product
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from domain.lifecycle import ParkReason
from ingest.health import Health, health_app
from ops.asking import ASKING
from ops.side import LIMITS, serve, unix_socket
from storage import destinations
from storage.parking import park_waiting
from storage.schema import migrate
from tests.by_hand import Hand
from tests.office import ADMIN, TOKEN, running
from tests.servers import Servers


def numbers(text: str) -> dict[str, float]:
    return {
        "|".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# --- who may come in ----------------------------------------------------------------------------------


async def test_without_the_token_everything_is_the_same_refusal(database_url: str) -> None:
    paths = ("/", "/api/v1/backlog", "/nowhere", "/api/v1/events/evt_1/body")
    wrong = ("Bearer", "Bearer wrong", "Basic eDp3cm9uZw==", "Basic ???", f"Digest {TOKEN}", "Bearer \xff")
    proofs = [
        {},
        {b"cookie": f"token={TOKEN}".encode()},
        *({b"authorization": text.encode("latin-1")} for text in wrong),
    ]
    async with running(database_url) as client:
        answers = [
            await client.request(method, path, headers=headers)
            for method, path, headers in product(("GET", "POST", "DELETE"), paths, proofs)
        ]

    assert {answer.status_code for answer in answers} == {401}
    assert {answer.headers["content-type"] for answer in answers} == {"application/problem+json"}
    assert {answer.json()["detail"] for answer in answers} == {"This needs a token."}


async def test_with_the_token_the_overview_and_the_backlog_are_there(database_url: str, hand: Hand) -> None:
    hand.lane()
    hand.post(n=3)
    async with running(database_url) as client:
        page = await client.get("/", headers=ADMIN)
        backlog = await client.get("/api/v1/backlog", headers=ADMIN)
        nowhere = await client.get("/nowhere", headers=ADMIN)

    assert page.status_code == 200
    assert 'href="/partners/shop"' in page.text
    assert '<td class="n" data-label="Backlog">3</td>' in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert page.headers["cache-control"] == "no-store"
    assert [(p["partner"], p["waiting"]) for p in backlog.json()] == [("shop", 3)]
    assert nowhere.status_code == 404


async def test_metrics_are_open_unless_they_have_a_token(database_url: str) -> None:
    async with running(database_url) as client:
        assert (await client.get("/metrics")).status_code == 200
    async with running(database_url, metrics_token="for-the-scraper") as client:
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers={"authorization": "Bearer for-the-scraper"})).status_code == 200
        assert (await client.get("/metrics", headers=ADMIN)).status_code == 200
        assert (await client.get("/", headers={"authorization": "Bearer for-the-scraper"})).status_code == 401


async def test_silent_connections_shut_the_door_for_nobody(database_url: str) -> None:
    async with running(database_url) as client:
        address = client.base_url.host, client.base_url.port
        silent = [await asyncio.open_connection(*address) for _ in range(LIMITS.connections + 50)]
        for _, writer in silent[:100]:
            writer.write(b"GET /health/live HTTP/1.1\r\n")
        await asyncio.sleep(0.2)
        for path in ("/health/live", "/health/ready", "/metrics"):
            assert (await client.get(path, headers={"connection": "close"})).status_code == 200

        last_reader, last_writer = await asyncio.open_connection(*address)
        began = asyncio.get_running_loop().time()
        last_writer.write(b"GET /health/live HTTP/1.1\r\n")
        assert (await asyncio.wait_for(last_reader.read(), 8)).startswith(b"HTTP/1.1 408")
        assert asyncio.get_running_loop().time() - began < 7
        for _, writer in [*silent, (last_reader, last_writer)]:
            writer.close()


async def test_without_an_admin_token_nobody_is_let_in(database_url: str) -> None:
    async with running(database_url, admin_token=None) as client:
        answers = [await client.get("/", headers={"authorization": given}) for given in ("Bearer", "Bearer None", "")]

    assert [answer.status_code for answer in answers] == [401] * 3


# --- health -------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def roles(folder: Path, **healths: Health) -> AsyncIterator[dict[str, Path]]:
    """Processes that say so of themselves, each on its socket."""
    stop = asyncio.Event()
    sockets = {name: folder / f"{name}.sock" for name in healths}
    tasks = [
        asyncio.create_task(serve(health_app(_always(health)), [unix_socket(sockets[name])], stop))
        for name, health in healths.items()
    ]
    try:
        yield sockets
    finally:
        stop.set()
        await asyncio.gather(*tasks)


def _always(health: Health) -> Callable[[], Health]:
    return lambda: health


async def test_the_system_is_ready_when_every_role_is(database_url: str, tmp_path: Path) -> None:
    async with (
        roles(tmp_path, ingest=Health(True), worker=Health(True)) as sockets,
        running(database_url, health_sockets=sockets) as client,
    ):
        answer = await client.get("/health/ready")

    assert answer.status_code == 200
    assert answer.json()["status"] == "ready"
    assert answer.json()["roles"]["worker"] == {"status": "ready", "amiss": []}


async def test_an_absent_redis_degrades_the_system(database_url: str, tmp_path: Path) -> None:
    async with (
        roles(tmp_path, ingest=Health(True, ("redis away",)), worker=Health(True)) as sockets,
        running(database_url, health_sockets=sockets) as client,
    ):
        answer = await client.get("/health/ready")

    assert answer.status_code == 200
    assert answer.json()["status"] == "degraded"
    assert answer.json()["roles"]["ingest"] == {"status": "degraded", "amiss": ["redis away"]}


async def test_one_role_that_is_not_ready_is_told_with_its_reasons(database_url: str, tmp_path: Path) -> None:
    async with (
        roles(tmp_path, ingest=Health(True), worker=Health(False, ("owns no shard",))) as sockets,
        running(database_url, health_sockets=sockets) as client,
    ):
        answer = await client.get("/health/ready")

    assert answer.status_code == 503
    assert answer.json()["roles"]["worker"] == {"status": "unready", "amiss": ["owns no shard"]}


async def test_a_role_that_says_nothing_is_not_ready_and_not_waited_for(database_url: str, tmp_path: Path) -> None:
    hanging = unix_socket(tmp_path / "worker.sock")
    sockets = {"worker": tmp_path / "worker.sock", "jobs": tmp_path / "nobody.sock"}
    async with running(database_url, health_sockets=sockets) as client:
        async with asyncio.timeout(2.5):
            answer = await client.get("/health/ready")
    hanging.close()

    assert answer.status_code == 503
    assert {role["status"] for role in answer.json()["roles"].values()} == {"unready"}


async def test_without_the_database_it_is_not_ready_but_lives_and_counts(own_servers: Servers) -> None:
    url = own_servers.url_of("hookyard")
    migrate(url)
    async with running(url) as client:
        assert (await client.get("/health/ready")).status_code == 200
        own_servers.stop_postgres()
        await asyncio.sleep(1.1)  # answers are kept a second

        ready, live, metrics = [await client.get(path) for path in ("/health/ready", "/health/live", "/metrics")]
        page = await client.get("/", headers=ADMIN)

        assert (ready.status_code, ready.json()["amiss"]) == (503, ["database away"])
        assert live.status_code == 200
        assert metrics.status_code == 200
        assert numbers(metrics.text)["hookyard_database_up"] == 0
        assert page.status_code == 503

        own_servers.start_postgres()
        async with asyncio.timeout(10):
            while (await client.get("/health/ready")).status_code != 200:
                await asyncio.sleep(0.1)


async def test_a_database_that_hangs_holds_up_neither_an_answer_nor_the_end(own_servers: Servers) -> None:
    url = own_servers.url_of("hookyard")
    migrate(url)
    frozen: list[int] = []
    try:
        async with running(url) as client:
            await asyncio.gather(client.get("/health/ready"), client.get("/metrics"))  # connections are open now
            frozen = _frozen(own_servers.postgres_process.pid)
            await asyncio.sleep(1.1)  # answers are kept a second

            async with asyncio.timeout(8):
                ready, metrics = await asyncio.gather(client.get("/health/ready"), client.get("/metrics"))
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        _forget_what_hung()

    assert ready.status_code == 503
    assert numbers(metrics.text)["hookyard_database_up"] == 0


def _forget_what_hung() -> None:
    """The connections that were given up come back to nobody; at the end of a process that is its end too."""
    for thread in threading.enumerate():
        if thread.name == ASKING:
            thread.join(10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _frozen(pid: int) -> list[int]:
    """The process and its children, none of which does anything any more."""
    family = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    for member in family:
        os.kill(member, signal.SIGSTOP)
    return family


# --- metrics ------------------------------------------------------------------------------------------


async def test_every_way_of_parking_counts_and_a_replay_takes_nothing_back(database_url: str, hand: Hand) -> None:
    hand.lane()
    hand.post(n=5)
    hand.dispatch()
    warehouse = destinations_id(hand)
    async with running(database_url) as client:
        assert numbers((await client.get("/metrics")).text)["hookyard_lane_backlog|shop|warehouse"] == 5

        destinations.suspend(hand.store, warehouse, "answered 410 Gone")
        hand.post(n=2)
        hand.dispatch()  # parked as they are dispatched
        await asyncio.sleep(1.1)
        found = numbers((await client.get("/metrics")).text)

        assert found["hookyard_parked_total|warehouse|destination_suspended"] == 7
        assert found["hookyard_parked|shop|warehouse"] == 7
        assert found["hookyard_lane_backlog|shop|warehouse"] == 0

        hand.sql("DELETE FROM parked WHERE seq <= 4")  # what a replay does to them
        await asyncio.sleep(1.1)
        found = numbers((await client.get("/metrics")).text)

        assert found["hookyard_parked_total|warehouse|destination_suspended"] == 7
        assert found["hookyard_parked|shop|warehouse"] == 3


async def test_removed_destinations_have_no_gate_and_keep_their_total(database_url: str, hand: Hand) -> None:
    hand.lane()
    hand.post(n=2)
    hand.dispatch()
    destinations.remove(hand.store, "warehouse", even_if_waiting=True, actor="tester")
    async with running(database_url) as client:
        found = numbers((await client.get("/metrics")).text)

    assert "hookyard_destination_in_flight|warehouse" not in found
    assert "hookyard_breaker_state|warehouse" not in found
    assert found["hookyard_parked_total|warehouse|destination_removed"] == 2


def destinations_id(hand: Hand) -> int:
    with hand.store.begin() as connection:
        return destinations.find(connection, "warehouse").id


def test_parking_what_waits_twice_counts_once(hand: Hand) -> None:
    hand.lane()
    hand.post(n=3)
    hand.dispatch()
    for _ in range(2):
        park_waiting(hand.store, destinations_id(hand), ParkReason.DESTINATION_SUSPENDED)

    assert [tuple(row) for row in hand.rows("SELECT reason, n FROM parkings")] == [("destination_suspended", 3)]
