"""Answers that are looked up by blocking calls: not more often than worth it, and never waited for without end.

A database that hangs holds up a thread and an answer, nothing else: not the event loop, not the end of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from storage.errors import BadData, StorageUnavailable

Answer = TypeVar("Answer")

ASKING = "asking"  # the threads' name
FRESH_SECONDS = 1.0
SHARE = 10  # an answer that took long is kept so many times as long: asking costs the database a tenth of its time


async def in_daemon_thread(work: Callable[[], Answer]) -> Answer:
    """What `work` returns or raises. Unlike `asyncio.to_thread` a call that never returns cannot keep the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Answer] = loop.create_future()

    def settle(answer: Answer | None, problem: BaseException | None) -> None:
        if future.done():
            return
        if problem is not None:
            future.set_exception(problem)
        else:
            future.set_result(answer)  # type: ignore[arg-type]

    def run() -> None:
        answer, problem = None, None
        try:
            answer = work()
        except BaseException as raised:  # noqa: BLE001 - handed on to who waits
            problem = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, answer, problem)

    threading.Thread(target=run, name=ASKING, daemon=True).start()
    return await future


class Asked(Generic[Answer]):
    """The last answer of a question to the database, asked again when it is no longer fresh; by one asker at a time."""

    def __init__(self, question: Callable[[], Answer], patience_seconds: float) -> None:
        self._question, self._patience = question, patience_seconds
        self._asking: asyncio.Task[None] | None = None
        self._answer: Answer | None = None
        self._fresh_until = 0.0

    async def answer(self) -> Answer | None:
        """The answer, at most a second old or ten times as old as it took; None: the database does not give one."""
        if time.monotonic() < self._fresh_until:
            return self._answer
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        done, _ = await asyncio.wait({self._asking}, timeout=self._patience)
        return self._answer if done else None

    async def _ask(self) -> None:
        began = time.monotonic()
        try:
            self._answer = await in_daemon_thread(self._question)
        except (StorageUnavailable, BadData):
            self._answer = None
        except Exception:  # noqa: BLE001 - a defect in one question must not end the process that answers others
            structlog.get_logger("ops").exception("ops.question_failed")
            self._answer = None
        finally:
            now = time.monotonic()
            self._fresh_until = now + max(FRESH_SECONDS, SHARE * (now - began) if self._answer is not None else 0)
            self._asking = None
