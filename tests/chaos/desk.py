"""A desk at which people use the command line: one process for all commands, because one for each takes too long."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OURS = Path(__file__).parents[2]
SECONDS = 60.0  # a command takes, whatever the servers do
PROGRAM = """
import contextlib, io, json, sys
from ops.cli import run
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(json.loads(line))
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Deed:
    """A command that was given, and what it said; both instants of time.monotonic."""

    argv: tuple[str, ...]
    began_at: float
    ended_at: float
    code: int
    out: str
    err: str

    @property
    def is_done(self) -> bool:
        """Otherwise nobody knows whether it was: the answer to its commit may have been lost."""
        return self.code == 0

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    def __str__(self) -> str:
        return f"{' '.join(self.argv)}: {self.code}, {self.err.strip() or self.out.strip()}"


@dataclass(slots=True)
class Desk:
    """One command at a time."""

    _process: asyncio.subprocess.Process
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def do(self, *argv: str) -> Deed:
        """The command has ended."""
        async with self._lock, asyncio.timeout(SECONDS):
            assert self._process.stdin
            assert self._process.stdout
            began_at = time.monotonic()
            self._process.stdin.write(json.dumps(argv).encode() + b"\n")
            code, out, err = json.loads(await self._process.stdout.readline())
            return Deed(argv, began_at, time.monotonic(), code, out, err)


@contextlib.asynccontextmanager
async def opened(folder: Path, environment: dict[str, str]) -> AsyncIterator[Desk]:
    """A desk in this folder; its process ends with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        cwd=folder,
        env=environment | {"PYTHONPATH": str(OURS)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    try:
        yield Desk(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
