"""One installation of the product as its users have it: the `hookyard` command, its processes, its two ports.

Nothing of the product is imported here: what these tests know is what a user knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOOKYARD = Path(sys.prefix, "bin", "hookyard")
READY_SECONDS = 60.0
COMMAND_SECONDS = 60.0
ROLES = ("ingest", "worker", "jobs", "ops")


@dataclass(frozen=True, slots=True)
class Told:
    """How a command ended, and what it said."""

    argv: tuple[str, ...]
    code: int
    out: bytes
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


class Product:
    """`hookyard up` in a folder of its own, on free ports. It can be stopped and started again on its data."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.ingest_port, self.ops_port = free_port(), free_port()
        own = {"INGEST_BIND": f"127.0.0.1:{self.ingest_port}", "OPS_BIND": f"127.0.0.1:{self.ops_port}"} | settings
        kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("HOOKYARD_")}
        self.environment = kept | {f"HOOKYARD_{name}": value for name, value in own.items()}
        self._starts = 0
        self._family: dict[int, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def use(self, **environment: str) -> None:
        """From the next start on its processes find this in their environment."""
        self.environment |= environment

    # --- life --------------------------------------------------------------------------------------------------------

    def launch(self) -> subprocess.Popen[bytes]:
        """`hookyard up` has been called; whether it gets anywhere is another question."""
        self._starts += 1
        with self._log.open("wb") as output:
            return subprocess.Popen(
                [HOOKYARD, "up"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def start(self) -> Product:
        """It has said `hookyard ready`."""
        self.process = self.launch()
        until(lambda: "hookyard ready" in self.lines or not self.is_running, READY_SECONDS, self._tail)
        assert self.is_running, self._tail()
        self._family = self.family()
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 60) -> float:
        """The supervisor has ended after the signal; the seconds it took."""
        assert self.process
        self._family |= self.family()
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(seconds)
        return time.monotonic() - began

    def destroy(self) -> None:
        """Nothing of it is left."""
        if self.process is None:
            return
        self._family |= self.family()
        if self.is_running:
            self.process.kill()
        self.process.wait()
        try:
            until(lambda: not self.survivors(), 10, lambda: f"still alive: {self.survivors()}")
        finally:
            for pid in self.survivors():
                os.kill(pid, signal.SIGKILL)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def lines(self) -> list[str]:
        """What the last `up` has printed."""
        return self._log.read_text(errors="replace").splitlines()

    @property
    def _log(self) -> Path:
        return self.folder / f"up-{self._starts}.log"

    def _tail(self) -> str:
        return "\n".join(["the last lines of `hookyard up`:", *self.lines[-15:]])

    # --- processes ---------------------------------------------------------------------------------------------------

    def family(self) -> dict[int, str]:
        """Every live process below and with the supervisor, and what tells it from a later one of its number."""
        assert self.process
        pids = descendants(self.process.pid) | {self.process.pid}
        return {pid: born for pid in pids if (born := birth(pid))}

    def survivors(self) -> list[int]:
        """Of the processes it ever had (as far as anybody looked) those that are alive."""
        return [pid for pid, born in self._family.items() if birth(pid) == born]

    def processes(self, role: str) -> list[int]:
        """The supervisor's children of one role, or of an embedded server: `postgres`, `valkey`."""
        assert self.process
        return sorted(pid for pid in children(self.process.pid) if role_of(pid) == role)

    def kill(self, role: str, index: int = 0) -> int:
        """One process of the role is dead by SIGKILL: its number."""
        pid = self.processes(role)[index]
        os.kill(pid, signal.SIGKILL)
        return pid

    # --- asking ------------------------------------------------------------------------------------------------------

    def run(self, *argv: str, stdin: bytes = b"") -> Told:
        """One command of its command line."""
        done = subprocess.run(
            [HOOKYARD, *argv],
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            capture_output=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        return Told(argv, done.returncode, done.stdout, done.stderr.decode())

    async def cli(self, *argv: str, stdin: bytes = b"") -> Told:
        """A command that must succeed."""
        told = await asyncio.to_thread(self.run, *argv, stdin=stdin)
        assert told.code == 0, told
        return told

    async def ask(self, *argv: str) -> Any:
        """The document of a command that must succeed."""
        return (await self.cli(*argv, "--json")).document

    async def refused(self, *argv: str) -> Told:
        """A command that must fail, in one line on stderr and with nothing on stdout."""
        told = await asyncio.to_thread(self.run, *argv)
        assert told.code, told
        assert told.out == b"", told
        assert len(told.err.splitlines()) == 1, told
        return told

    async def lane(self, partner: str, destination: str, url: str, *options: str) -> None:
        """A new partner joined to a new destination of this policy."""
        await asyncio.gather(
            self.cli("partner", "add", partner), self.cli("destination", "add", destination, url, *options)
        )
        await self.cli("subscribe", partner, destination)

    async def settled(self, *partners: str, seconds: float = 30) -> None:
        """Nothing of these partners (of nobody: of all) waits or is in flight."""
        async with asyncio.timeout(seconds):
            while any(_is_busy(row) for row in await self.ask("backlog") if row["partner"] in partners or not partners):
                await asyncio.sleep(0.1)


def _is_busy(row: dict[str, Any]) -> bool:
    return bool(row["waiting"] or any(lane["waiting"] or lane["in_flight"] for lane in row["lanes"]))


def until(condition: Callable[[], object], seconds: float, what: Callable[[], str]) -> None:
    """The condition holds; it is asked often."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s; {what()}"
        time.sleep(0.02)


def free_port() -> int:
    """A port that nobody listens on, outside the range from which the system takes ports of its own."""
    while True:
        port = random.randint(10_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def role_of(pid: int) -> str:
    """What a child of the supervisor is, by its command line: `hookyard worker`, a server's program."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return ""
    if words[-1] in ROLES:
        return words[-1]
    return re.sub(r"[^a-z].*", "", Path(words[0]).name)


def children(pid: int) -> list[int]:
    try:
        return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _words(task / "children")]
    except OSError:
        return []


def descendants(pid: int) -> set[int]:
    return set().union(*({child} | descendants(child) for child in children(pid)))


def birth(pid: int) -> str | None:
    """When a live process began, in the kernel's ticks; None: there is no such process any more."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
