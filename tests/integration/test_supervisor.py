"""`hookyard up` with stand-ins for the roles: who may start, what comes back, and what is left after which end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import psycopg
import pytest

from ops import datadir
from ops.processes import start_time

STAND_INS = Path(__file__).parent.parent / "stand_in_roles.py"
READY_SECONDS = 30.0


class Up:
    """One `hookyard up` on a data directory, with its output in a file."""

    def __init__(self, data_dir: Path, **environment: str) -> None:
        self.data_dir = data_dir
        self._log = data_dir.with_suffix(f".{time.monotonic_ns()}.log")
        settings = {
            "HOOKYARD_DATA_DIR": str(data_dir),
            "HOOKYARD_INGEST_BIND": "127.0.0.1:0",
            "HOOKYARD_OPS_BIND": "127.0.0.1:0",
        }
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(STAND_INS), "up"],
                env={**os.environ, **settings, **environment},
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=data_dir.parent,
            )

    @property
    def lines(self) -> list[str]:
        return self._log.read_text().splitlines()

    def wait_ready(self) -> Up:
        def ready_or_ended() -> bool:
            return "hookyard ready" in self.lines or self.process.poll() is not None

        until(ready_or_ended, READY_SECONDS, "ready")
        assert self.process.poll() is None, self.lines
        return self

    def url(self, role: str) -> str:
        found = re.search(rf"^{role} +(http://[^/]+)", "\n".join(self.lines), re.MULTILINE)
        assert found, self.lines
        return found[1]

    def family(self) -> dict[int, str]:
        """Every live process below the supervisor by its number, with what tells it from a later one."""
        return {pid: started for pid in descendants(self.process.pid) if (started := start_time(pid))}

    def pid_of(self, slot: str) -> int | None:
        """The process that fills a slot (or is a server's main process)."""
        for pid in children(self.process.pid):
            with contextlib.suppress(OSError):  # it ended meanwhile
                program = Path(os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0])).name
                environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if f"HOOKYARD_SLOT={slot}".encode() in environment or program.startswith(slot):
                    return pid
        return None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)
        return self.process.wait(60)


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """Not pytest's own temporary folder: that one is closed to the unprivileged user the servers run as."""
    with tempfile.TemporaryDirectory(prefix="hookyard-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder, "data")


@pytest.fixture
def up(data_dir: Path) -> Iterator[Callable[..., Up]]:
    """Starts `hookyard up` on the data directory; whatever happens, nothing of it is left."""
    started: list[Up] = []

    def start(**environment: str) -> Up:
        started.append(Up(data_dir, **environment))
        return started[-1]

    yield start
    for one in started:
        family = one.family()
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        until_gone(family, 10)


def until(condition: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def until_gone(family: dict[int, str], seconds: float) -> None:
    until(lambda: not living(family), seconds, "the end of every process")


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task")
    try:
        return [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]
    except OSError:
        return []


def descendants(pid: int) -> set[int]:
    return set().union(*({child} | descendants(child) for child in children(pid)))


def living(family: dict[int, str]) -> list[int]:
    return [pid for pid, started in family.items() if start_time(pid) == started]


def test_up_says_where_everything_is_and_stops_in_order(up: Callable[..., Up]) -> None:
    running = up(HOOKYARD_WORKER_PROCESSES="2").wait_ready()
    family = running.family()

    with urlopen(running.url("ingest") + "/in/nobody", timeout=5) as answer:
        assert answer.read() == b"ingest-0"
    assert running.lines[0].startswith("data ")
    assert any(re.fullmatch(r"token   [\w-]{40,}", line) for line in running.lines)
    assert running.lines[-1] == "hookyard ready"

    assert running.stop() == 0
    stopped = [line.split()[0] for line in running.lines if line.endswith(" stopped")]
    assert stopped[0] == "ingest-0"
    assert sorted(stopped[1:3]) == ["worker-0", "worker-1"]
    assert sorted(stopped[3:5]) == ["jobs-0", "ops-0"]
    assert stopped[5:] == ["hookyard"]
    assert running.lines[-1] == "hookyard stopped"
    assert living(family) == []


def test_ctrl_c_in_the_terminal_stops_in_the_same_order(up: Callable[..., Up]) -> None:
    running = up().wait_ready()
    assert running.stop(signal.SIGINT) == 0  # to the whole foreground group, as a terminal does
    stopped = [line.split()[0] for line in running.lines if line.endswith(" stopped")]
    assert stopped[:2] == ["ingest-0", "worker-0"]


def test_a_second_up_on_the_same_data_directory_is_refused_at_once(up: Callable[..., Up]) -> None:
    first = up().wait_ready()
    began = time.monotonic()
    second = up()
    assert second.process.wait(10) == 1
    assert time.monotonic() - began < 3
    assert second.lines == [f"hookyard: hookyard is already running on {first.data_dir} (process {first.process.pid})"]
    assert first.process.poll() is None


def test_a_port_in_use_is_refused_before_anything_starts(up: Callable[..., Up], data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = up(HOOKYARD_OPS_BIND=bind)
        assert refused.process.wait(10) == 1
    assert refused.lines == [f"hookyard: HOOKYARD_OPS_BIND {bind} is in use by another program"]
    assert not (data_dir / "postgres").exists()


def test_two_servers_on_one_port_are_refused_by_both_names(up: Callable[..., Up]) -> None:
    both = {"HOOKYARD_INGEST_BIND": "0.0.0.0:18080", "HOOKYARD_OPS_BIND": "127.0.0.1:18080"}
    running = up(**both)
    assert running.process.wait(20) == 1
    (told,) = running.lines
    assert told.startswith("hookyard: HOOKYARD_INGEST_BIND 0.0.0.0:18080 and HOOKYARD_OPS_BIND 127.0.0.1:18080 are")


def test_a_database_of_ones_own_needs_a_master_key(up: Callable[..., Up]) -> None:
    refused = up(HOOKYARD_DATABASE_URL="postgresql://u:secret@127.0.0.1:1/x")
    assert refused.process.wait(10) == 1
    assert len(refused.lines) == 1
    assert "HOOKYARD_MASTER_KEY" in refused.lines[0]


def test_a_role_that_never_starts_stops_the_system(up: Callable[..., Up]) -> None:
    refused = up(FAILING="ops")
    family = refused.family()
    assert refused.process.wait(30) == 1
    assert refused.lines[-1] == "hookyard: ops-0 ended 5 times in a row"
    assert living(family) == []


def test_a_failed_migration_stops_the_system(up: Callable[..., Up]) -> None:
    refused = up(FAILING="migrate")
    assert refused.process.wait(30) == 1
    assert refused.lines[-1] == "hookyard: the migration of the database ended with exit code 3"


def test_a_killed_supervisor_leaves_nothing_and_the_next_one_waits_for_that(
    up: Callable[..., Up], data_dir: Path
) -> None:
    first = up(HOOKYARD_WORKER_PROCESSES="2").wait_ready()
    family = first.family()
    assert len(family) > 8
    with psycopg.connect(_database_url(data_dir), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("INSERT INTO kept VALUES (1)")

    first.process.kill()  # not reaped yet: the zombie must not count as a running supervisor
    second = up()
    until_gone(family, 5)
    first.process.wait()

    second.wait_ready()
    with psycopg.connect(_database_url(data_dir)) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (1,)


@pytest.mark.slow
def test_every_killed_child_comes_back(up: Callable[..., Up], data_dir: Path) -> None:
    running = up().wait_ready()
    for slot in ("ingest-0", "worker-0", "jobs-0", "ops-0", "valkey", "postgres"):
        old = running.pid_of(slot)
        assert old, slot
        os.kill(old, signal.SIGKILL)
        until(partial(_is_new, running, slot, old), 10, f"a new {slot}")
    with urlopen(running.url("ingest"), timeout=5) as answer:
        assert answer.read() == b"ingest-0"
    until(lambda: _answers(data_dir), 20, "PostgreSQL answers again")
    assert running.stop() == 0


def test_callers_wait_while_ingest_restarts(up: Callable[..., Up]) -> None:
    running = up().wait_ready()
    pid = running.pid_of("ingest-0")
    assert pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: not start_time(pid), 5, "the end of the only process that accepts")
    with urlopen(running.url("ingest"), timeout=5) as answer:  # refused, if the supervisor did not hold the socket
        assert answer.status == 200


def test_keys_and_data_are_the_same_after_a_restart(up: Callable[..., Up], data_dir: Path) -> None:
    up().wait_ready().stop()
    before = [datadir.master_key(data_dir), datadir.admin_token(data_dir)]
    running = up().wait_ready()
    assert [datadir.master_key(data_dir), datadir.admin_token(data_dir)] == before
    assert (data_dir / "master.key").stat().st_mode & 0o777 == 0o600
    assert (data_dir / "servers.json").stat().st_mode & 0o777 == 0o600
    assert running.process.poll() is None


def test_a_second_signal_hurries(up: Callable[..., Up]) -> None:
    running = up().wait_ready()
    worker = running.pid_of("worker-0")
    assert worker
    os.kill(worker, signal.SIGSTOP)  # it will not answer SIGTERM
    began = time.monotonic()
    running.process.send_signal(signal.SIGTERM)
    until(lambda: "ingest-0 stopped" in running.lines, 5, "the stop began")
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(20) == 0
    assert time.monotonic() - began < 10


def _is_new(running: Up, slot: str, old: int) -> bool:
    return running.pid_of(slot) not in (None, old)


def _database_url(data_dir: Path) -> str:
    servers = datadir.read_servers(data_dir)
    assert servers
    return servers.database_url


def _answers(data_dir: Path) -> bool:
    try:
        with psycopg.connect(_database_url(data_dir), connect_timeout=2):
            return True
    except psycopg.Error:
        return False
