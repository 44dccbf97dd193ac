"""Keeping children alive, and ending them in order.

A child that ends is started again: at once, then after growing pauses while it keeps ending soon after its start. What
is told to stop is told by group, in order; each group has its time, and then is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ops.embedded import StillRunning
from ops.processes import CannotStart, describe_exit, send

_STEP_SECONDS = 0.05
_STEADY_SECONDS = 10.0  # a child that lived this long starts with a clean record
_AGAIN_SECONDS = 1.0  # before what cannot be started is tried again
_PAUSES = (0.0, 0.25, 0.5, 1.0, 2.0, 5.0)  # seconds before the 1st, 2nd, … restart in a row; the last one repeats
_HURRIED_SECONDS = 2.0  # what each child still gets after a second signal
GIVE_UP_AFTER = 5  # ends in a row before the system was ready once: it will never be

StopSignals = Sequence[tuple[signal.Signals, float]]


@dataclass(slots=True)
class Child:
    """One process to keep. `start` may raise StillRunning, CannotStart or OSError, and is then tried again. `ended` is
    told of each end that was not asked for."""

    name: str
    start: Callable[[], subprocess.Popen[bytes]]
    stop_signals: StopSignals
    ended: Callable[[], object] = lambda: None
    process: subprocess.Popen[bytes] | None = None
    endings: int = 0  # in a row
    started_at: float = field(default=0.0)

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def begin(self) -> None:
        self.started_at = time.monotonic()
        self.process = self.start()


async def keep(child: Child, say: Callable[[str], None], may_give_up: Callable[[], bool]) -> None:
    """Runs until cancelled. Raises CannotStart when the child keeps ending, or cannot start, and giving up is allowed.

    However long it lasts: what keeps it from starting is said once, its endings in a row ever more seldom.
    """
    told = ""
    while True:
        while child.is_alive:
            await asyncio.sleep(_STEP_SECONDS)
        if child.process is not None:
            _record_ending(child, say)
            if child.endings >= GIVE_UP_AFTER and may_give_up():
                raise CannotStart(f"{child.name} ended {child.endings} times in a row")
            await asyncio.sleep(pause_before(child.endings))
        try:
            child.begin()
            told = ""
        except (StillRunning, CannotStart, OSError) as problem:
            if isinstance(problem, CannotStart) and may_give_up():
                raise
            if str(problem) != told:
                told = str(problem)
                say(f"{child.name} cannot be started yet: {told}")
            await asyncio.sleep(_AGAIN_SECONDS)


def pause_before(restart: int) -> float:
    """Seconds to wait before the n-th restart in a row."""
    return _PAUSES[min(restart, len(_PAUSES)) - 1]


async def end(children: Sequence[Child], hurried: asyncio.Event) -> None:
    """The children have ended, all told at the same time; those that took too long were killed."""
    steps = max((len(child.stop_signals) for child in children), default=0)
    for step in range(steps):
        told = [child for child in children if child.is_alive and step < len(child.stop_signals)]
        for child in told:
            if child.process:
                send(child.process, child.stop_signals[step][0])
        await _until_ended(told, max((child.stop_signals[step][1] for child in told), default=0.0), hurried)
    for child in children:
        if child.process and child.is_alive:
            child.process.kill()
            child.process.wait()


async def _until_ended(children: Sequence[Child], seconds: float, hurried: asyncio.Event) -> None:
    deadline = time.monotonic() + seconds
    was_hurried = False
    while any(child.is_alive for child in children) and time.monotonic() < deadline:
        if hurried.is_set() and not was_hurried:
            was_hurried = True
            deadline = min(deadline, time.monotonic() + _HURRIED_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(_STEP_SECONDS), _STEP_SECONDS * 2)


def _record_ending(child: Child, say: Callable[[str], None]) -> None:
    steady = time.monotonic() - child.started_at >= _STEADY_SECONDS
    child.endings = 1 if steady else child.endings + 1
    code = child.process.returncode if child.process else 0
    with contextlib.suppress(OSError):  # a folder that cannot be written to must not end everything
        child.ended()
    if child.endings <= GIVE_UP_AFTER or child.endings.bit_count() == 1:  # then at 8, 16, 32, …
        often = f" for the {child.endings}th time in a row" if child.endings > GIVE_UP_AFTER else ""
        say(f"{child.name} {describe_exit(code)}{often}; starting it again")
