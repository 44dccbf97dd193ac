"""The disk is full: everything is refused that cannot be stored, nothing that was acknowledged is lost, and it goes on
by itself once there is room."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.invariants import changed, lanes_violations
from tests.acceptance.product import Product, descendants, until
from tests.acceptance.receiver import Receiver
from tests.acceptance.sender import JSON, Sender, sending
from tests.raw_http import Answer, ask, head

LARGE_BYTES = 900_000  # stored in files of their own, which soon have to grow
WAL_SEGMENT_BYTES = 16 << 20


class SmallDisk:
    """A file system of its own holds the whole data directory."""

    def __init__(self, product: Product) -> None:
        self._ballast = product.folder / "disk" / "ballast"

    def fill(self) -> None:
        """Not a block is left."""
        with self._ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass

    def make_room(self) -> None:
        self._ballast.unlink()


class SmallFiles:
    """PostgreSQL's files may not grow beyond a size: what remains of a full disk for who may not mount one."""

    def __init__(self, product: Product) -> None:
        (self._postmaster,) = product.processes("postgres")

    def fill(self) -> None:
        self._limit(str(WAL_SEGMENT_BYTES))

    def make_room(self) -> None:
        self._limit("unlimited")

    def _limit(self, size: str) -> None:
        """By its own user: nobody else's limits may be changed, not even by every super-user."""
        account = Path(f"/proc/{self._postmaster}").stat()
        for pid in (self._postmaster, *descendants(self._postmaster)):
            changed = ["prlimit", f"--pid={pid}", f"--fsize={size}:"]
            subprocess.run(
                changed, user=account.st_uid, group=account.st_gid, extra_groups=[], check=False, capture_output=True
            )


@dataclass(frozen=True, slots=True)
class Rig:
    """A running product, and how its disk is filled."""

    product: Product
    disk: SmallDisk | SmallFiles


@pytest.fixture
def rig() -> Iterator[Rig]:
    """On a file system of 96 MiB where one can be mounted, else with files that may not grow."""
    with tempfile.TemporaryDirectory(prefix="hookyard-test-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        disk = folder / "disk"
        disk.mkdir()
        mounting = ["mount", "-t", "tmpfs", "-o", "size=96m,mode=755", "tmpfs", str(disk)]
        is_mounted = not subprocess.run(mounting, capture_output=True, check=False).returncode
        if not is_mounted and not shutil.which("prlimit"):
            pytest.skip("no file system can be mounted here, and there is no prlimit, of util-linux")
        product = Product(folder, LEASE_SECONDS="2", DATA_DIR=str(disk / "data"))
        try:
            product.start()
            yield Rig(product, SmallDisk(product) if is_mounted else SmallFiles(product))
        finally:
            product.destroy()
            if is_mounted:
                subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.slow
async def test_a_full_disk_is_refused_and_survived_even_where_postgres_ends_itself(
    rig: Rig, receiver: Receiver
) -> None:
    product, disk = rig.product, rig.disk
    await product.lane("acme", "ledger", receiver.url("/ledger"))
    async with sending("acme", product.ingest_port) as sender:
        await sender.send(b"before")
        disk.fill()
        await refused(sender)
        await unready(product)
        if isinstance(disk, SmallDisk):
            await asyncio.to_thread(panic, product)
            for _ in range(20):
                assert_refused(await sender.post(b"meanwhile", JSON))
                await asyncio.sleep(0.1)
        disk.make_room()
        await sender.insist(os.urandom(LARGE_BYTES), "the-last")
        await product.settled("acme")

    assert changed(receiver.arrivals, sender.accepted) == []
    assert lanes_violations(receiver.arrivals, repeats_explained=1) == {}
    assert set(receiver.successes("/ledger")) == {event.sequence for event in sender.accepted}
    assert len(product.lines) < 50


async def refused(sender: Sender) -> None:
    """Large events are sent until one is refused; what was stored up to there was acknowledged."""
    for number in range(40):
        body = os.urandom(LARGE_BYTES)
        answer = await sender.post(body, JSON, f"webhook-id: large-{number}")
        if answer.status != 202:
            assert_refused(answer)
            return
        await sender.insist(body, f"large-{number}")  # it is noted as acknowledged, under the same number
    raise AssertionError("everything was stored")


def assert_refused(answer: Answer) -> None:
    assert (answer.status, "retry-after" in answer.headers) == (503, True), answer


async def unready(product: Product) -> None:
    """Ingest says that it cannot store."""
    async with asyncio.timeout(30):
        while (await ask(product.ingest_port, head("/health/ready", method="GET"))).status != 503:
            await asyncio.sleep(0.05)


def panic(product: Product) -> None:
    """The server has ended over a log file that it could not make."""
    servers = json.loads((product.folder / "disk" / "data" / "servers.json").read_text())
    with (
        contextlib.suppress(psycopg.OperationalError),
        psycopg.connect(servers["database_url"], autocommit=True) as line,
    ):
        for _ in range(100):
            line.execute("SELECT pg_switch_wal()")
            line.execute("CREATE TABLE something (n int)")
            line.execute("DROP TABLE something")
    until(lambda: any("postgres ended" in line for line in product.lines), 30, lambda: "\n".join(product.lines))
