"""An attempt in a process of its own: whatever it does to that process, its neighbours and the worker live on.

The process is there, and has said so, before the attempt is claimed. It is given one errand, makes it by the very code
that the worker makes its own by, tells what came of it and ends. That it has died, or says nothing long after every
deadline of the attempt, is an outcome too. It ends with its worker, and is deaf to the signals that ask one to stop: an
orderly stop is the worker's to decide, and must not look like a death.
"""

import asyncio
import contextlib
import ctypes
import os
import pickle
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence

from delivery.client import Client
from delivery.clock import boot_seconds
from delivery.errand import Done, Errand, run
from delivery.exchange import Exchange, Outcome
from domain.addresses import Network

READY = b"ready\n"
START_SECONDS = 30.0
SLACK_SECONDS = 10.0  # beyond the last moment at which the attempt ends by itself: a machine may be slow
PR_SET_PDEATHSIG = 1


class CannotStart(Exception):
    """There is no process to be had; nothing was sent."""


class Alone:
    """A process for one errand."""

    def __init__(self, process: Process, allowed: Sequence[Network]) -> None:
        self._process, self._allowed = process, tuple(allowed)

    async def run(self, errand: Errand) -> Done:
        """What came of the errand, `crashed` where the process did not survive it. It has ended in any case."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        seconds = errand.start_by - boot_seconds() + errand.destination.timeout.total_seconds() + SLACK_SECONDS
        try:
            async with asyncio.timeout(seconds):
                told, _ = await self._process.communicate(pickle.dumps((errand, self._allowed)))
        except TimeoutError:
            why = "hung, and was killed"
        else:
            with contextlib.suppress(pickle.UnpicklingError, EOFError):
                done: Done = pickle.loads(told)  # noqa: S301 - our own process wrote it
                return done
            why = _ending(self._process.returncode)
        finally:
            await _end(self._process)  # a cancellation too is learnt of only when nothing can go out any more
        duration_ms = round((loop.time() - began_at) * 1000)
        return Done(Exchange(Outcome.CRASHED, duration_ms, error=f"alone in a process of its own, which {why}"))


@contextlib.asynccontextmanager
async def alone(allowed: Sequence[Network]) -> AsyncIterator[Alone]:
    """A process that is ready, for as long as it is needed. Raises: CannotStart."""
    try:
        process = await _spawn()
    except OSError as problem:
        raise CannotStart(str(problem)) from problem
    try:
        await _until_ready(process)
        yield Alone(process, allowed)
    finally:
        await _end(process)


async def _spawn() -> Process:
    """Raises: OSError."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOOKYARD_")}  # our own secrets
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__, str(os.getpid())),
        stdin=PIPE,
        stdout=PIPE,
        env=kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
    )


async def _until_ready(process: Process) -> None:
    """Raises: CannotStart."""
    assert process.stdout  # noqa: S101 - it is a pipe
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_SECONDS):
            if await process.stdout.readline() == READY:
                return
    raise CannotStart(f"the process was not ready within {START_SECONDS:g} s")


async def _end(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.communicate()


def _ending(code: int | None) -> str:
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


# --- in the process --------------------------------------------------------------------------------------------------


def main(worker: int) -> None:
    """An errand comes in by stdin, what came of it goes out by stdout."""
    _die_with(worker)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    import uvloop

    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)  # whatever else is printed is none
        answer.write(READY)
        answer.flush()
        errand, allowed = pickle.load(sys.stdin.buffer)  # noqa: S301 - our own worker wrote it
        pickle.dump(uvloop.run(_run(errand, allowed)), answer)
    os._exit(0)  # a thread that looks up a name may never come back


async def _run(errand: Errand, allowed: Sequence[Network]) -> Done:
    try:
        return await run(errand, Client(allowed), lambda: boot_seconds() < errand.start_by)
    except Exception as problem:  # noqa: BLE001 - a defect of ours is no death, as in the worker
        return Done(Exchange(Outcome.UNDELIVERABLE, 0, error=f"internal error: {type(problem).__name__}"))


def _die_with(worker: int) -> None:
    """The kernel ends this process when its worker ends, however that ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != worker:  # it has ended already
        os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
