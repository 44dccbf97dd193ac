"""A real PostgreSQL and a real Valkey of our own, from the programs inside two wheels.

Each server listens on 127.0.0.1 only, behind a password, and holds a lock file open as long as any of its processes
lives. Having that lock therefore means that no process of an earlier start can still write to the data, which is when,
and only when, PostgreSQL's own pid file may be removed (its number may belong to somebody else after a restart of the
machine, and PostgreSQL would refuse to start for ever).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

import psycopg
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ops.place import Place
from ops.processes import CannotStart, run_as, spawn, wait_until

PATIENCE_SECONDS = 60.0  # crash recovery replays at most max_wal_size of log
ONCE = Retry(NoBackoff(), 0)  # redis-py tries ten times unless told
LOG_LIMIT_BYTES = 10_000_000
_PORTS = range(
    20_000, 32_000
)  # below Linux's ephemeral range, so that no outgoing connection takes a restarting server's

POSTGRES_SETTINGS: Mapping[str, str] = {
    # What 202 promises: a commit is on disk before it is answered.
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "unix_socket_directories": "''",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "10min",
    "timezone": "'UTC'",
    "log_timezone": "'UTC'",
    "log_checkpoints": "off",
    "log_min_messages": "log",  # not the errors of statements: the application reports those, without the values
    "log_min_error_statement": "panic",
    "log_line_prefix": "'%m [%p] '",
}


class StillRunning(Exception):
    """A process of an earlier start has not ended yet."""


class Server(Protocol):
    """What the supervisor needs to keep a server running."""

    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def log(self) -> Path: ...
    @property
    def stop_signals(self) -> tuple[tuple[signal.Signals, float], ...]: ...
    def start(self) -> subprocess.Popen[bytes]: ...
    def is_ready(self) -> bool: ...


@dataclass(slots=True)
class Postgres:
    place: Place
    port: int
    password: str = field(repr=False)
    password_is_new: bool = True  # then a cluster that is there is given it before it starts, once
    settings: Mapping[str, str] = field(default_factory=dict)  # beside or instead of POSTGRES_SETTINGS

    name = "postgres"
    # fast shutdown; then immediate (recovered at the next start); then SIGKILL
    stop_signals = ((signal.SIGINT, 5.0), (signal.SIGQUIT, 2.0))

    @property
    def url(self) -> str:
        return self._url("hookyard")

    @property
    def log(self) -> Path:
        return self.place.root / "postgres.log"

    @property
    def _data(self) -> Path:
        return self.place.root / "postgres"

    def start(self) -> subprocess.Popen[bytes]:
        """The server is starting; its data is made at the first start. Raises StillRunning, CannotStart."""
        with _lock(self.place.root / "postgres.lock") as lock, _log(self.log) as log:
            self._prepare()
            address = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={self.port}"]
            return spawn(
                [self.place.programs.postgres, "-D", self._data, *address],
                env=_environment(),
                account=self.place.account,
                dies_by=signal.SIGQUIT,
                output=log,
                inherit=[lock],
                cwd=self._data,
            )

    def is_ready(self) -> bool:
        """It answers, and the database is there (made at the first start)."""
        try:
            with psycopg.connect(self._url("postgres"), connect_timeout=2, autocommit=True) as connection:
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = 'hookyard'").fetchone():
                    connection.execute("CREATE DATABASE hookyard")
        except psycopg.Error:
            return False
        return True

    def _prepare(self) -> None:
        """The cluster exists, with our settings. An interrupted attempt leaves nothing behind that looks like one."""
        is_first = not self._data.exists()
        if is_first:
            new = self.place.root / "postgres.new"
            shutil.rmtree(new, ignore_errors=True)
            self._initdb(self.place.folder(new.name))
            new.rename(self._data)
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        _write_private(
            self._data / "postgresql.conf", _lines({**POSTGRES_SETTINGS, **self.settings}, " = "), self.place
        )
        if self.password_is_new and not is_first:
            self._set_password()
        self.password_is_new = False

    def _set_password(self) -> None:
        """The stopped cluster has this password from its next start on: the one it had is lost."""
        single: list[str | Path] = [self.place.programs.postgres, "--single", "-D", self._data, "postgres"]
        outcome = run_as(self.place.account, single, typed=f"ALTER ROLE hookyard PASSWORD '{self.password}'\n")
        if outcome.returncode:
            raise CannotStart(
                f"the embedded PostgreSQL's password is lost and cannot be set: {_last_line(outcome.stderr)}"
            )

    def _url(self, database: str) -> str:
        return f"postgresql://hookyard:{self.password}@127.0.0.1:{self.port}/{database}"

    def _initdb(self, folder: Path) -> None:
        password = self.place.root / "postgres.password"  # read once by initdb, then gone
        _write_private(password, self.password, self.place)
        try:
            locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C", "--encoding=UTF8"]
            access = ["--username=hookyard", "--auth=scram-sha-256", f"--pwfile={password}"]
            outcome = run_as(self.place.account, [self.place.programs.initdb, "-D", folder, *locale, *access])
        finally:
            password.unlink()
        if outcome.returncode:
            raise CannotStart(f"the embedded PostgreSQL's data cannot be made: {_last_line(outcome.stderr)}")


@dataclass(frozen=True, slots=True)
class Valkey:
    place: Place
    port: int
    password: str = field(repr=False)

    name = "valkey"
    stop_signals = ((signal.SIGTERM, 2.0),)

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def log(self) -> Path:
        return self.place.root / "valkey.log"

    def start(self) -> subprocess.Popen[bytes]:
        """The server is starting. Raises StillRunning while an earlier one is ending."""
        with _lock(self.place.root / "valkey.lock") as lock, _log(self.log) as log:
            folder = self.place.folder("valkey")
            self._prepare(folder)
            return spawn(
                ["valkey-server", folder / "valkey.conf"],
                program=self.place.programs.valkey,
                env=_environment(),
                account=self.place.account,
                output=log,
                inherit=[lock],
                cwd=folder,
            )

    def is_ready(self) -> bool:
        """It answers, which it does not while it reads its file."""
        try:
            with redis.Redis.from_url(self.url, socket_timeout=2, socket_connect_timeout=2, retry=ONCE) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def _prepare(self, folder: Path) -> None:
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "requirepass": self.password,
            "dir": f'"{folder}"',
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": '""',
            "maxmemory-policy": "noeviction",
        }
        _write_private(folder / "valkey.conf", _lines(settings, " "), self.place)
        if _cannot_read_its_file(self.log):
            shutil.rmtree(folder / "appendonlydir.unreadable", ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                (folder / "appendonlydir").rename(folder / "appendonlydir.unreadable")


def start_and_wait(server: Server, patience_seconds: float = PATIENCE_SECONDS) -> subprocess.Popen[bytes]:
    """The server is ready. Raises CannotStart, with the last line of its log, when it ended or took too long."""
    deadline = time.monotonic() + patience_seconds
    process = _start_when_free(server, deadline)
    while not server.is_ready():
        if process.poll() is not None or not wait_until(deadline):
            process.kill()
            process.wait()
            raise CannotStart(f"the embedded {server.name} did not start: {last_words(server)}")
    return process


def last_words(server: Server) -> str:
    """The last line of the server's log, and where to read the rest."""
    text = server.log.read_text(errors="replace") if server.log.exists() else ""
    return f"{_last_line(text)} (see {server.log})"


def trim(log: Path) -> None:
    """The log is no larger than its limit: it is written in append mode, so it can be emptied under the writer."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > LOG_LIMIT_BYTES:
            os.truncate(log, 0)


def free_port(wanted: int | None = None) -> int:
    """`wanted` if nobody listens on it, or else a random one."""
    candidates = [wanted] if wanted else []
    candidates += random.sample(_PORTS, 50)
    for port in candidates:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise CannotStart("no free port on 127.0.0.1 for the embedded servers")


def new_password() -> str:
    return secrets.token_hex(24)


def _start_when_free(server: Server, deadline: float) -> subprocess.Popen[bytes]:
    while True:
        try:
            return server.start()
        except StillRunning:
            if not wait_until(deadline):
                raise CannotStart(f"an earlier {server.name} of this data directory is still running") from None


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[int]:
    """An exclusive lock that lasts as long as anybody holds this descriptor: children who inherit it keep it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    except BlockingIOError:
        raise StillRunning(path.name) from None
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _log(path: Path) -> Iterator[IO[bytes]]:
    trim(path)
    with open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        yield file


def _environment() -> dict[str, str]:
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


def _write_private(path: Path, text: str, place: Place) -> None:
    """Readable for the servers' user alone, and never seen half written."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with open(new, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        if place.account:
            os.chown(file.fileno(), place.account.uid, place.account.gid)
        file.write(text)
    new.rename(path)


def _lines(settings: Mapping[str, str], between: str) -> str:
    return "".join(f"{name}{between}{value}\n" for name, value in settings.items())


def _cannot_read_its_file(log: Path) -> bool:
    """Whether Valkey's last start ended over its append-only file. It holds hints only: the next start may be empty."""
    return log.exists() and "append only file" in _last_line(log.read_text(errors="replace"))


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no reason given")[:300]
