"""Keeping children: how soon one that ended is started again, and when that is given up."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import pytest

from ops.keeping import GIVE_UP_AFTER, Child, end, keep, pause_before
from ops.processes import CannotStart


def a_child(code: str, *stop_signals: tuple[signal.Signals, float]) -> Child:
    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)

    return Child("child", start, stop_signals)


def test_the_first_restart_is_immediate_and_the_pauses_grow_to_five_seconds() -> None:
    assert [pause_before(n) for n in (1, 2, 3, 6, 100)] == [0.0, 0.25, 0.5, 5.0, 5.0]


async def test_a_child_that_keeps_ending_is_given_up_before_the_system_was_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ops.keeping._PAUSES", (0.0,))
    said: list[str] = []
    ends: list[int] = []
    child = Child("child", lambda: subprocess.Popen(["/bin/sh", "-c", "exit 3"]), (), lambda: ends.append(1))
    with pytest.raises(CannotStart, match="5 times"):
        await keep(child, said.append, may_give_up=lambda: True)
    assert len(ends) == GIVE_UP_AFTER
    assert said == ["child ended with exit code 3; starting it again"] * GIVE_UP_AFTER


async def test_what_cannot_be_started_is_tried_again_once_the_system_was_ready_and_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ops.keeping._AGAIN_SECONDS", 0.0)
    problems = iter([CannotStart("no room"), OSError("no room"), CannotStart("no password")])
    said: list[str] = []
    started = asyncio.Event()

    def start() -> subprocess.Popen[bytes]:
        if (problem := next(problems, None)) is not None:
            raise problem
        started.set()
        return subprocess.Popen(["/bin/sh", "-c", "exec sleep 60"])

    child = Child("child", start, ())
    keeping = asyncio.create_task(keep(child, said.append, may_give_up=lambda: False))
    async with asyncio.timeout(10):
        await started.wait()
    keeping.cancel()
    await end([child], asyncio.Event())
    assert said == ["child cannot be started yet: no room", "child cannot be started yet: no password"]
    with pytest.raises(CannotStart):
        await keep(Child("other", _never, ()), said.append, may_give_up=lambda: True)


async def test_a_child_that_goes_on_ending_is_told_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.keeping._PAUSES", (0.0,))
    monkeypatch.setattr("ops.keeping._STEP_SECONDS", 0.001)
    said: list[str] = []
    enough = asyncio.Event()

    def count() -> None:
        if child.endings == 20:
            enough.set()

    child = Child("child", lambda: subprocess.Popen(["/bin/true"]), (), count)
    keeping = asyncio.create_task(keep(child, said.append, may_give_up=lambda: False))
    async with asyncio.timeout(30):
        await enough.wait()
    keeping.cancel()
    await end([child], asyncio.Event())
    assert [line.removeprefix("child ended with exit code 0 ") for line in said[GIVE_UP_AFTER:]] == [
        f"for the {n}th time in a row; starting it again" for n in (8, 16)
    ]


async def test_a_child_that_ignores_its_signal_is_killed_in_the_end() -> None:
    child = a_child(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)",
        (signal.SIGTERM, 0.2),
    )
    child.begin()
    await _has_spoken(child)
    await end([child], asyncio.Event())
    assert child.process
    assert child.process.returncode == -signal.SIGKILL
    _close(child)


async def test_in_a_hurry_nobody_gets_the_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.keeping._HURRIED_SECONDS", 0.1)
    child = a_child(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)",
        (signal.SIGTERM, 60),
    )
    child.begin()
    await _has_spoken(child)
    hurried = asyncio.Event()
    hurried.set()
    async with asyncio.timeout(5):
        await end([child], hurried)
    _close(child)


def _never() -> subprocess.Popen[bytes]:
    raise CannotStart("never")


async def _has_spoken(child: Child) -> None:
    assert child.process
    assert child.process.stdout
    await asyncio.to_thread(child.process.stdout.readline)


def _close(child: Child) -> None:
    if child.process and child.process.stdout:
        child.process.stdout.close()
