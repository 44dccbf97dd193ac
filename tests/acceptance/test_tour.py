"""The README's two minutes, as they are printed: the same blocks, in one shell, against a real `hookyard up`.

Only ports and places differ: the receiver listens on a free port, and everything lives in a folder of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STEP = re.compile(r"^<!-- tour: (?P<what>[\w ]+) -->\n(?:```sh\n(?P<block>.*?)^```)?", re.MULTILINE | re.DOTALL)
READY_SECONDS = 60.0
BLOCK_SECONDS = 60.0


class Terminal:
    """A shell that runs one block after the other, and ends at the first command that fails."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._shell = subprocess.Popen(
            ["bash", "-eo", "pipefail"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, block: str) -> str:
        """What the block printed, on either stream."""
        assert self._shell.stdin
        assert self._shell.stdout
        self._shell.stdin.write(f"{block}\necho '--- done ---'\n")
        self._shell.stdin.flush()
        lines: list[str] = []
        for line in self._shell.stdout:
            if line == "--- done ---\n":
                return "".join(lines)
            lines.append(line)
        raise AssertionError("a command of the tour failed:\n" + "".join(lines))

    def close(self) -> None:
        self._shell.kill()
        self._shell.communicate()


class Background:
    """A program in a terminal of its own; its output goes to a file."""

    def __init__(self, command: str, folder: Path, environment: dict[str, str]) -> None:
        self._log = folder / f"{time.monotonic_ns()}.log"
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=folder,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def interrupt(self) -> None:
        """Ctrl-C."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(60)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A checkout's look: `.venv` is there. Not pytest's own folder: the servers' user could not enter that."""
    with tempfile.TemporaryDirectory(prefix="hookyard-tour-") as name:
        Path(name).chmod(0o755)
        Path(name, ".venv").symlink_to(sys.prefix)
        yield Path(name)


@pytest.fixture
def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HOOKYARD_")}


@pytest.fixture
def running() -> Iterator[list[Background]]:
    """What is started is interrupted in the end, the last first."""
    started: list[Background] = []
    yield started
    for program in reversed(started):
        program.interrupt()


@pytest.mark.slow
def test_the_tour_of_the_readme_works_as_it_is_printed(
    folder: Path, environment: dict[str, str], running: list[Background]
) -> None:
    port = free_port()
    steps = printed_steps(port, folder)
    assert [what for what, _ in steps if what != "commands"] == [
        "up", "receiver", "stop the receiver", "receiver again"
    ]  # fmt: skip
    first, twice, broken, later, repaired = (block for what, block in steps if what == "commands")

    def receive(block: str) -> Background:
        receiver = Background(block, folder, environment)
        running.append(receiver)
        until(lambda: answers(port), 10, "the receiver listens")
        return receiver

    binds = {"HOOKYARD_INGEST_BIND": "127.0.0.1:0", "HOOKYARD_OPS_BIND": "127.0.0.1:0"}
    up = Background("exec .venv/bin/hookyard up", folder, environment | binds)  # what `make run` ends in
    running.append(up)
    until(lambda: "hookyard ready" in up.output, READY_SECONDS, "hookyard ready", lambda: up.output)
    receiver = receive(dict(steps)["receiver"])
    with contextlib.closing(Terminal(folder, environment)) as terminal:
        story = terminal.run(first)
        assert re.search(r"accepted evt_\w+ as sequence 1\n", story)
        assert re.search(r"^to orders: delivered\n.*\n +1 .* 200 +success$", story, re.MULTILINE)
        assert re.search(r"^1 attempt 1 \{", receiver.output, re.MULTILINE)

        assert terminal.run(twice).count("as sequence 2") == 2

        receiver.interrupt()
        waits = terminal.run(broken)  # on a slow machine the breaker may be open by now
        assert re.search(r"^ +orders +[12] .*(retry due|breaker open)", waits, re.MULTILINE), waits

        trouble = terminal.run(later)
        assert re.search(r" orders +3 .* attempts_exhausted ", trouble), trouble
        assert re.search(r"^ +orders +1 .* open .*breaker open, probe due", trouble, re.MULTILINE), trouble

        receiver = receive(dict(steps)["receiver again"])
        assert "1 delivery delivered, 0 parked again" in terminal.run(repaired)
        until(lambda: terminal.run("hookyard event list").count(" delivered ") == 4, BLOCK_SECONDS, "all delivered")
        assert re.findall(r"^(\d attempt \d) ", receiver.output, re.MULTILINE) in (
            ["4 attempt 3", "3 attempt 4"],
            ["3 attempt 4", "4 attempt 3"],  # the replay came before the waiting one had set out
        )
    up.interrupt()
    assert up.process.returncode == 0


def printed_steps(port: int, folder: Path) -> list[tuple[str, str]]:
    """The steps of the README's tour: what to do, and the block to do it with."""
    text = (ROOT / "README.md").read_text()
    steps = [(found["what"], found["block"] or "") for found in STEP.finditer(text)]
    return [(what, block.replace("9000", str(port)).replace("/tmp", str(folder))) for what, block in steps]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def until(
    condition: Callable[[], object], seconds: float, what: str, otherwise: Callable[[], str] = lambda: ""
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{otherwise()}"
        time.sleep(0.05)
