"""Answers that are looked up by blocking calls."""

from __future__ import annotations

import asyncio
import threading

from ops.asking import Asked
from storage.errors import StorageUnavailable


async def test_many_askers_are_one_question() -> None:
    asked = []

    def ask() -> str:
        asked.append(1)
        return "yes"

    question = Asked(ask, 1)

    assert await asyncio.gather(*(question.answer() for _ in range(20))) == ["yes"] * 20
    assert await question.answer() == "yes"
    assert len(asked) == 1


async def test_a_question_that_hangs_is_not_waited_for() -> None:
    held = threading.Event()
    question = Asked(lambda: held.wait(10) and "late", 0.05)

    assert await question.answer() is None
    held.set()
    async with asyncio.timeout(5):
        while await question.answer() != "late":
            await asyncio.sleep(0.01)


async def test_an_absent_database_is_no_answer_and_is_asked_again() -> None:
    def away() -> str:
        raise StorageUnavailable("database: away")

    question = Asked(away, 1)

    assert await question.answer() is None
    assert await question.answer() is None
