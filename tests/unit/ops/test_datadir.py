"""The data directory: its keys, its lock, and what the command line finds in it."""

from __future__ import annotations

import os
import subprocess
from ipaddress import ip_network
from pathlib import Path

import pytest

from ops import datadir
from ops.datadir import ServersFile
from ops.processes import CannotStart, start_time
from ops.settings import Settings, WrongSetting, load


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    for name in list(os.environ):
        if name.startswith("HOOKYARD_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    datadir.make(tmp_path / ".hookyard")
    return load()


def test_generated_keys_are_for_their_owner_and_stay_the_same(tmp_path: Path) -> None:
    for make, name in ((datadir.master_key, "master.key"), (datadir.admin_token, "admin.token")):
        first = make(tmp_path)
        assert make(tmp_path) == first
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_a_file_is_no_data_directory(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStart, match="it is no directory"):
        datadir.make(tmp_path / "file")
    with pytest.raises(WrongSetting, match="is a file, allowed is a directory"):
        datadir.complete(settings.model_copy(update={"data_dir": tmp_path / "file"}))


def test_a_damaged_master_key_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "master.key").write_text("gone")
    with pytest.raises(CannotStart, match="restore it"):
        datadir.master_key(tmp_path)
    assert (tmp_path / "master.key").read_text() == "gone"


def test_the_command_line_finds_what_the_running_up_uses(settings: Settings) -> None:
    lock = datadir.take_lock(settings.data_dir)
    servers = ServersFile(
        "postgresql://h:p@127.0.0.1:1/h", "redis://:p@127.0.0.1:2/0", "127.0.0.0/8", "127.0.0.1:3", "[::1]:4"
    )
    datadir.write_servers(settings.data_dir, servers)
    key = datadir.master_key(settings.data_dir)

    found = datadir.complete(settings)

    assert (found.database_url, found.redis_url) == (servers.database_url, servers.redis_url)
    assert found.master_key == key
    assert found.allow_networks == (ip_network("127.0.0.0/8"),)
    assert (found.ingest_bind.port, found.ops_bind.host) == (3, "::1")
    os.close(lock)


def test_what_is_given_wins_over_what_is_found(settings: Settings) -> None:
    lock = datadir.take_lock(settings.data_dir)
    datadir.write_servers(
        settings.data_dir, ServersFile("postgresql://h/h", "redis://h", "127.0.0.0/8", "127.0.0.1:3", "")
    )
    given = settings.model_copy(update={"database_url": "postgresql://mine/x", "allow_networks": ()})
    found = datadir.complete(given)
    assert found.database_url == "postgresql://mine/x"
    assert found.allow_networks == ()
    assert found.master_key is None  # the generated key belongs to the embedded database
    os.close(lock)


def test_without_a_database_the_command_line_says_so_in_one_line(settings: Settings) -> None:
    datadir.write_servers(settings.data_dir, ServersFile("postgresql://h/h", "redis://h"))  # of an `up` that has ended
    with pytest.raises(WrongSetting) as missing:
        datadir.complete(settings)
    assert str(missing.value) == (
        f"no database: no `hookyard up` runs on {settings.data_dir} (HOOKYARD_DATA_DIR): start it, "
        "or set HOOKYARD_DATABASE_URL"
    )


def test_a_number_that_was_given_to_another_process_since_is_no_supervisor(tmp_path: Path) -> None:
    own = os.getpid()
    (tmp_path / "up.lock").write_text(f"{own} {start_time(own)}\n")
    assert datadir.supervisor_pid(tmp_path) == own
    (tmp_path / "up.lock").write_text(f"{own} 12345\n")
    assert datadir.supervisor_pid(tmp_path) is None


def test_a_locked_directory_whose_supervisor_died_is_waited_for_but_not_for_ever(tmp_path: Path) -> None:
    held = datadir.take_lock(tmp_path)
    (tmp_path / "up.lock").write_text("1 0\n")  # killed; what it started still holds the lock
    with pytest.raises(CannotStart, match="have not ended"):
        datadir.take_lock(tmp_path, patience_seconds=0.1)
    os.close(held)
    os.close(datadir.take_lock(tmp_path, patience_seconds=0))


def test_a_data_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStart, match="cannot be used"):
        datadir.make(tmp_path / "file" / "data")


def test_a_supervisor_that_died_and_was_not_buried_is_no_supervisor(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as dying:
        started = start_time(dying.pid)
        (tmp_path / "up.lock").write_text(f"{dying.pid} {started}\n")
        assert datadir.supervisor_pid(tmp_path) == dying.pid
        dying.kill()
        os.waitid(os.P_PID, dying.pid, os.WEXITED | os.WNOWAIT)  # dead, but still in the table of processes
        assert datadir.supervisor_pid(tmp_path) is None
