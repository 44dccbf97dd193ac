"""A process of the bench's own that is spoken to in lines, and ends when its stdin does."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).parents[1]
ANSWER_SECONDS = 60.0


class NoAnswer(Exception):
    """A helper has ended, or says nothing."""


class Helper:
    """`python -m MODULE ARGS` in the root folder."""

    def __init__(self, module: str, *argv: str, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self._name = module
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *argv],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, line: str = "") -> None:
        assert self._process.stdin
        self._process.stdin.write(line.encode() + b"\n")

    def hear(self, seconds: float = ANSWER_SECONDS) -> str:
        """The next line. Raises: NoAnswer."""
        assert self._process.stdout
        heard = b""
        while not heard.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], seconds)
            piece = self._process.stdout.readline() if ready else b""
            if not piece:
                raise NoAnswer(f"{self._name} {'has ended' if ready else 'says nothing'}")
            heard += piece
        return heard.decode().strip()

    def end(self) -> None:
        """The process is gone."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            pipe.close()
