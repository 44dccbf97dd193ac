"""Where the embedded servers keep their data, and as whom they run.

Normally inside the data directory. Started by root the servers run as an unprivileged user; where that user cannot
reach the data directory (a checkout below /root, say), the data goes to a folder of ours below /var/lib/hookyard, and a
pointer file in the data directory says so. No directory that was there before changes its mode or its owner.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from ops.processes import Account, CannotStart, run_as, unprivileged_account
from ops.programs import Programs, programs_for

ELSEWHERE = Path("/var/lib/hookyard")
POINTER = "servers-are-at"


@dataclass(frozen=True, slots=True)
class Place:
    """`root` holds `postgres`, `valkey` and their logs; `note` is a line for the person who starts it, or empty."""

    root: Path
    account: Account | None
    programs: Programs
    note: str = ""

    def folder(self, name: str) -> Path:
        """A folder below the root that only the servers' user may enter; it is made when missing."""
        path = self.root / name
        if not path.exists():
            path.mkdir(mode=0o700)
            if self.account:
                os.chown(path, self.account.uid, self.account.gid)
        return path


def choose_place(data_dir: Path, elsewhere: Path = ELSEWHERE) -> Place:
    """The same place at every start with this data directory. Raises CannotStart where there is none."""
    pointer = data_dir / POINTER
    root = Path(pointer.read_text().strip()) if pointer.exists() else data_dir
    account = unprivileged_account(like=root / "postgres")
    if account is None:
        _require_own(root)
    elif root == data_dir and not _can_enter(data_dir, account):
        if (data_dir / "postgres").exists():
            raise CannotStart(
                f"user {account.name} can no longer reach {data_dir}, where the embedded servers' data is"
            )
        root = _make_root(data_dir, elsewhere)
        pointer.write_text(f"{root}\n")
    if not root.exists():
        raise CannotStart(f"{pointer} names {root}, which is gone: restore it, or delete that file to start empty")
    programs = programs_for(account, spare=_spare(root, data_dir, elsewhere))
    notes = [
        f"server data is in {root} (user {account.name} cannot reach {data_dir})"
        if account and root != data_dir
        else "",
        f"server programs are copied to {programs.postgres.parents[4]}"
        if "programs" in programs.postgres.parts
        else "",
    ]
    return Place(root, account, programs, "; ".join(note for note in notes if note))


def _require_own(root: Path) -> None:
    postgres = root / "postgres"
    if (root / POINTER).exists() or (postgres.exists() and postgres.stat().st_uid != os.geteuid()):
        raise CannotStart(f"the servers' data of {root} belongs to another user: start as that user, or as root")


def _can_enter(folder: Path, account: Account) -> bool:
    """Asked of the kernel, as that user: modes of all parents, access lists and mounts count."""
    return run_as(account, ["/bin/sh", "-c", 'test -x "$1"', "sh", folder]).returncode == 0


def _make_root(data_dir: Path, elsewhere: Path) -> Path:
    """A new folder; one that is there already belongs to a data directory that was deleted, and is left alone."""
    if not elsewhere.exists():
        elsewhere.mkdir(parents=True)
        elsewhere.chmod(0o755)
    name = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
    for number in range(1, 1000):
        root = elsewhere / (name if number == 1 else f"{name}-{number}")
        try:
            root.mkdir()
        except FileExistsError:
            continue
        root.chmod(0o711)
        return root
    raise CannotStart(f"{elsewhere} holds a thousand abandoned folders {name}-*: remove what is no longer needed")


def _spare(root: Path, data_dir: Path, elsewhere: Path) -> Path:
    """Where programs are copied to if they must be: a folder every user can reach."""
    if root != data_dir:
        return root
    return elsewhere / hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
