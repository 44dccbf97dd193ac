"""What goes on beside the work of a process goes on whatever happens to it, and no log is filled with it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from storage import loops
from storage.loops import Loops


class Log:
    """Writes down what was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def error(self, event: str, **fields: Any) -> None:
        self.lines.append(f"{event} {fields['loop']}: {fields['problem']}")

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append(f"{event} {fields['loop']}")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(loops, "STEADY_SECONDS", 0.1)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


async def raises() -> None:
    raise ValueError("a defect")


async def is_cancelled_from_inside() -> None:
    raise asyncio.CancelledError


async def ends() -> None:
    return


@pytest.mark.parametrize(
    ("death", "problem"),
    [
        (raises, "ValueError: a defect"),
        (is_cancelled_from_inside, "CancelledError: "),
        (ends, "RuntimeError: it ended"),
    ],
)
async def test_a_loop_that_dies_again_and_again_is_told_once_and_begins_until_it_goes_on(
    death: Callable[[], Any], problem: str
) -> None:
    log, kept, deaths = Log(), None, 0
    made = Loops(log)

    async def work() -> None:
        nonlocal deaths
        deaths += 1
        await (death() if deaths <= 5 else asyncio.Event().wait())

    kept = asyncio.create_task(made.keep("watch", work))
    await until(lambda: deaths == 3)
    assert made.failing == {"watch"}

    await until(lambda: not made.failing)

    assert deaths == 6
    assert log.lines == [f"loop.died watch: {problem}", "loop.steady watch"]
    kept.cancel()
    await asyncio.wait([kept])
    assert kept.cancelled()


async def test_a_loop_may_end_when_its_time_is_over() -> None:
    log = Log()

    await Loops(log).keep("door", ends, is_over=lambda: True)
    assert await Loops(log).run("door", ends, is_over=lambda: True)

    assert log.lines == []
