"""The data directory: who runs on it, its generated keys, and how the command line finds what `hookyard up` started.

    up.lock        held (flock) by the supervisor and every role it started; says which process the supervisor is
    servers.json   where the embedded servers are, with their passwords, and what else `up` uses
    master.key     encrypts secrets at rest      admin.token   the first admin token

Files are readable for the user who started `up` alone.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ops.processes import CannotStart, start_time, wait_until
from ops.settings import Settings, WrongSetting, parse_bind, parse_master_keys, parse_networks

LOOPBACK = "127.0.0.0/8,::1/128"
DYING_SECONDS = 15.0  # how long a new `up` waits for the children of one that was killed


@dataclass(frozen=True, slots=True)
class ServersFile:
    """What `up` uses on this data directory: its embedded servers (empty: not embedded), networks, and own ports."""

    database_url: str = field(default="", repr=False)
    redis_url: str = field(default="", repr=False)
    allow_networks: str = ""
    ingest: str = ""
    ops: str = ""


def make(data_dir: Path) -> None:
    """The directory exists; a new one is ours alone, but as root the servers' user may pass through it."""
    try:
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            data_dir.mkdir()
            data_dir.chmod(0o711 if os.geteuid() == 0 else 0o700)
        if not data_dir.is_dir():
            raise NotADirectoryError("it is no directory")
        if not os.access(data_dir, os.W_OK | os.X_OK):
            raise PermissionError(f"no permission to write to {data_dir}")
    except OSError as problem:
        raise CannotStart(f"HOOKYARD_DATA_DIR {data_dir} cannot be used: {problem}") from None


def take_lock(data_dir: Path, patience_seconds: float = DYING_SECONDS) -> int:
    """The lock's descriptor, for children to inherit: the data directory is ours until the last of them has ended.

    Raises CannotStart at once while another supervisor runs here, and after the patience while what a killed one left
    behind has not ended.
    """
    path = data_dir / "up.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise CannotStart(f"{path} cannot be opened: {problem.strerror}") from None
    deadline = time.monotonic() + patience_seconds
    while not _locked(descriptor):
        if running := supervisor_pid(data_dir):
            raise CannotStart(f"hookyard is already running on {data_dir} (process {running})")
        if not wait_until(deadline):
            raise CannotStart(f"processes of an earlier hookyard on {data_dir} have not ended")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()} {start_time(os.getpid())}\n".encode(), 0)
    return descriptor


def supervisor_pid(data_dir: Path) -> int | None:
    """The live supervisor on this data directory. A number that was given to another process since is not it."""
    try:
        pid, started = (data_dir / "up.lock").read_text().split()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return int(pid) if pid.isdigit() and start_time(int(pid)) == started else None


def read_servers(data_dir: Path) -> ServersFile | None:
    """What the last `up` wrote, running or not; None where there was none, or the file is damaged."""
    try:
        return ServersFile(**json.loads((data_dir / "servers.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write_servers(data_dir: Path, servers: ServersFile) -> None:
    _write_private(data_dir / "servers.json", json.dumps(asdict(servers), indent=1) + "\n")


def has_lost_its_key(data_dir: Path) -> bool:
    """Whether servers have run on this data directory, but the key that was generated with them is gone."""
    return (data_dir / "servers.json").exists() and not (data_dir / "master.key").exists()


def master_key(data_dir: Path) -> str:
    """The generated key, made at the first call."""
    text = _generated(data_dir / "master.key", lambda: base64.b64encode(secrets.token_bytes(32)).decode())
    try:
        parse_master_keys(text)
    except ValueError as problem:
        raise CannotStart(
            f"{data_dir / 'master.key'} is damaged ({problem}): restore it, secrets cannot be read without"
        ) from None
    return text


def admin_token(data_dir: Path) -> str:
    """The generated token, made at the first call."""
    return _generated(data_dir / "admin.token", lambda: secrets.token_urlsafe(32))


def has_generated_token(settings: Settings) -> bool:
    """Whether the admin token in force is the one `up` has generated."""
    return settings.admin_token is None and (settings.data_dir / "admin.token").exists()


def complete(settings: Settings) -> Settings:
    """Settings for a command of the user's: what is not set is taken from the `up` that runs on the data directory.

    Raises WrongSetting when there is no database, neither set nor running here.
    """
    servers = _of_running_supervisor(settings.data_dir)
    if not settings.database_url and not servers.database_url:
        raise WrongSetting(
            f"no database: no `hookyard up` runs on {settings.data_dir} (HOOKYARD_DATA_DIR): "
            "start it, or set HOOKYARD_DATABASE_URL"
        )
    found: dict[str, object] = {}
    if not settings.database_url:
        found["database_url"] = servers.database_url
        found["master_key"] = settings.master_key or _read_key(settings.data_dir)
    if not settings.redis_url and servers.redis_url:
        found["redis_url"] = servers.redis_url
    if settings.allow_networks is None and servers.allow_networks:
        found["allow_networks"] = parse_networks(servers.allow_networks)
    for name, where in (("ingest_bind", servers.ingest), ("ops_bind", servers.ops)):
        if where and (
            name not in settings.model_fields_set or getattr(settings, name).port == 0
        ):  # 0: whichever it got
            found[name] = parse_bind(where)
    return settings.model_copy(update=found)


def _of_running_supervisor(data_dir: Path) -> ServersFile:
    try:
        if data_dir.exists() and not data_dir.is_dir():
            raise WrongSetting(f"HOOKYARD_DATA_DIR is wrong: {data_dir} is a file, allowed is a directory")
        return (supervisor_pid(data_dir) and read_servers(data_dir)) or ServersFile()
    except PermissionError:
        raise WrongSetting(f"{data_dir} belongs to another user: run this as the user of `hookyard up`") from None


def _read_key(data_dir: Path) -> str | None:
    with contextlib.suppress(OSError):
        return (data_dir / "master.key").read_text().strip()
    return None


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _generated(path: Path, make_text: Callable[[], str]) -> str:
    if not path.exists():
        _write_private(path, make_text() + "\n")
    return path.read_text().strip()


def _write_private(path: Path, text: str) -> None:
    """On disk, whole or not at all, for our own eyes."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with open(new, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
