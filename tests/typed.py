"""`hookyard …` as a process of its own, for commands that go on until somebody ends them; on a terminal where asked."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEY = "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="  # 32 times k, as the hand's vault
SECONDS = 60.0
ROWS, COLUMNS = 40, 160


def environment(database_url: str, folder: Path) -> dict[str, str]:
    """The environment of a command on this database, and on nothing else of this machine."""
    own = {
        "DATABASE_URL": database_url,
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "MASTER_KEY": KEY,
        "DATA_DIR": str(folder),
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOOKYARD_")}
    return kept | {f"HOOKYARD_{name}": value for name, value in own.items()}


class Typed:
    """A command that runs. `said` is all it has written so far, to stdout and stderr together."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process, self._descriptor = process, descriptor
        self.said = ""
        self._news, self._is_over = threading.Condition(), False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def until(self, text: str, times: int = 1) -> str:
        """All that was said, with this text in it (so many times). It has a minute."""
        with self._news:
            self._news.wait_for(lambda: self.said.count(text) >= times or self._is_over, SECONDS)
            assert self.said.count(text) >= times, f"no {text!r} in {self.said[-2000:]!r}"
            return self.said

    def press(self, keys: str) -> None:
        """The keys are pressed."""
        os.write(self._descriptor, keys.encode())

    def end(self, number: signal.Signals | None = None) -> int:
        """The exit code, after the signal where one is given."""
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        return code

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # of a terminal that nobody holds any more
            while chunk := os.read(self._descriptor, 65_536):
                with self._news:
                    self.said += chunk.decode(errors="replace")
                    self._news.notify_all()
        with self._news:
            self._is_over = True
            self._news.notify_all()


@contextlib.contextmanager
def typed(*argv: str, env: Mapping[str, str], tty: bool = False, folder: Path = ROOT) -> Iterator[Typed]:
    """The command runs meanwhile."""
    ours, theirs = pty.openpty() if tty else os.pipe()
    if tty:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "ops.cli", *argv],
        cwd=folder,
        env={**env, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"},
        stdin=theirs if tty else subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    if not tty:
        os.close(theirs)
    running = Typed(process, ours)
    try:
        yield running
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if tty:
            os.close(theirs)
        running._reader.join(SECONDS)
        os.close(ours)
