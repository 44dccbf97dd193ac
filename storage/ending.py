"""Ending tasks for good."""

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_SECONDS = 0.5


async def end(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """Every one of the tasks is cancelled and has ended.

    They are asked until they have: before Python 3.12 asyncio.wait_for, on which psycopg and redis-py wait, swallows a
    cancellation that comes together with what was waited for (python/cpython#86296), and a loop would go on for ever.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_SECONDS)
