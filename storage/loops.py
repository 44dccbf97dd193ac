"""Loops that go on beside the work of a process. One that dies is told of, and begins again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

AGAIN_SECONDS = 1.0
STEADY_SECONDS = 10.0  # what has gone on for so long is well again


class Loops:
    """`failing` names those that died, until they have gone on for a while: as long as one fails it is two lines."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.failing: set[str] = set()

    async def keep(
        self, name: str, work: Callable[[], Awaitable[object]], is_over: Callable[[], bool] = lambda: False
    ) -> None:
        """`work` goes on until this is cancelled or `is_over`, whatever it dies of."""
        while not is_over():
            if await self.run(name, work, is_over):
                return
            await asyncio.sleep(AGAIN_SECONDS)

    async def run(
        self, name: str, work: Callable[[], Awaitable[object]], is_over: Callable[[], bool] = lambda: True
    ) -> bool:
        """Whether `work` came to its end when it might; of anything else it dies of is told."""
        steady = asyncio.get_running_loop().call_later(STEADY_SECONDS, self._recover, name)
        try:
            await work()
            if is_over():
                return True
            problem: BaseException = RuntimeError("it ended")
        except (Exception, asyncio.CancelledError) as raised:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            problem = raised
        finally:
            steady.cancel()
        if name not in self.failing:
            self._log.error("loop.died", loop=name, problem=f"{type(problem).__name__}: {problem}", exc_info=problem)
        self.failing.add(name)
        return False

    def _recover(self, name: str) -> None:
        if name in self.failing:
            self.failing.discard(name)
            self._log.info("loop.steady", loop=name)
