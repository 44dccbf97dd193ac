"""Child processes that cannot outlive their supervisor: started, told to stop, and at the latest killed.

Linux only kills a child with its parent when the child asks for it (PR_SET_PDEATHSIG), and forgets the wish when the
child changes its user. So it is asked for after the change of user and before the program starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1


class CannotStart(Exception):
    """Something `hookyard up` needs is not there; the message is one line for the person who started it."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user that programs run as."""

    name: str
    uid: int
    gid: int


def unprivileged_account(like: Path | None = None) -> Account | None:
    """Whom the embedded servers run as: None (ourselves) unless we are root, for PostgreSQL refuses to run as root.

    The owner of `like`, if that exists and is not root's, comes before `hookyard` and `nobody`.
    """
    if os.geteuid() != 0:
        return None
    if like is not None and like.exists() and (uid := like.stat().st_uid) != 0:
        return Account(_name_of(uid), uid, like.stat().st_gid)
    for name in ("hookyard", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(name, entry.pw_uid, entry.pw_gid)
    return Account("uid 65534", 65534, 65534)


def _name_of(uid: int) -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"uid {uid}"


def spawn(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    account: Account | None = None,
    dies_by: signal.Signals = signal.SIGKILL,
    output: IO[bytes] | None = None,
    inherit: Sequence[int] = (),
    cwd: Path | None = None,
    program: Path | None = None,
) -> subprocess.Popen[bytes]:
    """A child in a session of its own (Ctrl-C does not reach it) that gets `dies_by` when this process ends.

    Must be called from the main thread: Linux sends the signal when the *thread* that started the child ends.
    `inherit` are descriptors the child keeps; `output` takes its stdout and stderr (None: ours).
    """
    return subprocess.Popen(
        [str(word) for word in argv],
        executable=str(program or argv[0]),
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=cwd,
        pass_fds=tuple(inherit),
        start_new_session=True,
        preexec_fn=_death_with_parent(dies_by),
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )


def run_as(account: Account | None, argv: Sequence[str | Path], typed: str = "") -> subprocess.CompletedProcess[str]:
    """The outcome of a short command, run as another user where one is named; `typed` is its standard input."""
    return subprocess.run(
        [str(word) for word in argv],
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        input=typed,
        cwd="/",
        env={"PATH": os.defpath, "LC_ALL": "C"},
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )


def stop(process: subprocess.Popen[bytes], *signals: tuple[signal.Signals, float]) -> None:
    """The process has ended: after one of the signals (each with the seconds to wait for it), or else killed."""
    for number, seconds in signals:
        send(process, number)
        if ended_within(process, seconds):
            return
    send(process, signal.SIGKILL)
    process.wait()


def send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def start_time(pid: int) -> str | None:
    """What tells this process from a later one with the same number; None when there is no such live process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def wait_until(deadline: float, step_seconds: float = 0.05) -> bool:
    """Sleeps a step; False once the deadline (of `time.monotonic`) has passed."""
    time.sleep(step_seconds)
    return time.monotonic() < deadline


def _death_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    libc, parent = _libc(), os.getpid()

    def arm() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # it died between the fork and the wish
            os._exit(1)

    return arm


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
