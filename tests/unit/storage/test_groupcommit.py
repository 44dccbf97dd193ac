"""One writer, whole batches: single flight, growth, blame, bounds, and how it ends."""

import asyncio
from collections.abc import Sequence

import pytest

from storage.errors import BadData, StorageUnavailable
from storage.groupcommit import GroupCommit, QueueFull


class Table:
    """Takes batches of words, one at a time while its door is open; refuses those that hold a `poison`."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.stored: list[str] = []
        self.door = asyncio.Event()
        self.door.set()
        self.knocked = asyncio.Event()
        self.inside = 0
        self.trouble: Exception | None = None

    async def commit(self, batch: Sequence[str]) -> list[str]:
        self.inside += 1
        assert self.inside == 1, "two flights at once"
        self.batches.append(list(batch))
        self.knocked.set()
        try:
            await self.door.wait()
            await asyncio.sleep(0)
            if self.trouble is not None:
                raise self.trouble
            if any("poison" in word for word in batch):
                raise BadData("poison")
        finally:
            self.inside -= 1
        self.stored += batch
        return [word.upper() for word in batch]


def a_group(
    table: Table, *, max_batch: int = 100, capacity: int = 100, capacity_bytes: int = 1 << 30
) -> GroupCommit[str, str]:
    return GroupCommit(table.commit, max_batch=max_batch, capacity=capacity, capacity_bytes=capacity_bytes, size=len)


async def fates(futures: Sequence["asyncio.Future[str]"]) -> list[str]:
    answers = await asyncio.gather(*futures, return_exceptions=True)
    return [type(answer).__name__ if isinstance(answer, BaseException) else answer for answer in answers]


async def blocked(table: Table, group: GroupCommit[str, str]) -> "asyncio.Future[str]":
    """The first item, whose commit has begun and does not end before the door is opened."""
    table.door.clear()
    first = group.submit("first")
    await table.knocked.wait()
    return first


async def test_a_lone_item_is_committed_at_once_and_gets_its_own_answer() -> None:
    table = Table()

    assert await a_group(table).submit("a") == "A"

    assert table.batches == [["a"]]


async def test_whatever_arrives_while_a_commit_runs_is_the_next_batch() -> None:
    table = Table()
    group = a_group(table)
    first = await blocked(table, group)

    rest = [group.submit(word) for word in "abc"]
    table.door.set()

    assert await fates([first, *rest]) == ["FIRST", "A", "B", "C"]
    assert table.batches == [["first"], ["a", "b", "c"]]


async def test_what_is_submitted_in_one_turn_of_the_loop_shares_a_commit() -> None:
    table = Table()
    group = a_group(table)

    await asyncio.gather(group.submit("outcome"), group.submit("claim"))

    assert table.batches == [["outcome", "claim"]]


async def test_a_batch_has_its_bound() -> None:
    table = Table()
    group = a_group(table, max_batch=2)

    await fates([group.submit(word) for word in "abcde"])

    assert table.batches == [["a", "b"], ["c", "d"], ["e"]]


@pytest.mark.parametrize("culprit", range(7))
async def test_one_bad_item_fails_alone(culprit: int) -> None:
    table = Table()
    words = [f"word{n}" for n in range(7)]
    words[culprit] = "poison"

    answers = await fates([group.submit(word) for group in [a_group(table)] for word in words])

    assert answers == ["BadData" if word == "poison" else word.upper() for word in words]
    assert table.stored == [word for word in words if word != "poison"]


async def test_several_bad_items_fail_and_nobody_else() -> None:
    table = Table()
    group = a_group(table)

    answers = await fates([group.submit(word) for word in ("poison1", "a", "poison2", "b", "c", "poison3")])

    assert answers == ["BadData", "A", "BadData", "B", "C", "BadData"]


async def test_an_absent_database_fails_the_whole_batch_and_is_asked_again_for_the_next() -> None:
    table = Table()
    group = a_group(table)
    table.trouble = StorageUnavailable("away")
    assert await fates([group.submit("a"), group.submit("b")]) == ["StorageUnavailable"] * 2

    table.trouble = None

    assert await group.submit("c") == "C"
    assert table.batches == [["a", "b"], ["c"]]


async def test_an_answer_too_few_fails_the_whole_batch() -> None:
    async def commit(batch: Sequence[str]) -> list[str]:
        return list(batch[1:])

    group: GroupCommit[str, str] = GroupCommit(commit, max_batch=9, capacity=9)

    assert await fates([group.submit("a"), group.submit("b")]) == ["RuntimeError"] * 2


async def test_a_full_queue_refuses_at_once_and_takes_again_after_a_commit() -> None:
    table = Table()
    group = a_group(table, capacity=3)
    first = await blocked(table, group)
    queued = [group.submit("a"), group.submit("b")]

    with pytest.raises(QueueFull):
        _ = group.submit("c")
    assert group.depth == 3

    table.door.set()
    await fates([first, *queued])
    assert (group.depth, await group.submit("d")) == (0, "D")


async def test_a_queue_is_full_of_bytes_too() -> None:
    table = Table()
    group = a_group(table, capacity_bytes=10)
    first = await blocked(table, group)  # five bytes
    second = group.submit("12345")

    with pytest.raises(QueueFull):
        _ = group.submit("6")

    table.door.set()
    await fates([first, second])
    assert await group.submit("1234567890") == "1234567890"


async def test_the_bytes_of_a_failed_batch_are_free_again() -> None:
    table = Table()
    group = a_group(table, capacity_bytes=10)

    assert await fates([group.submit("poison"), group.submit("a")]) == ["BadData", "A"]

    assert await group.submit("1234567890") == "1234567890"


async def test_closing_commits_what_is_queued_and_takes_nothing_more() -> None:
    table = Table()
    group = a_group(table)
    first = await blocked(table, group)
    second = group.submit("a")
    closing = asyncio.create_task(group.close())
    await asyncio.sleep(0)

    with pytest.raises(StorageUnavailable):
        _ = group.submit("b")
    table.door.set()
    await closing

    assert (first.done(), second.done(), table.stored) == (True, True, ["first", "a"])


async def test_closing_an_idle_group_returns_at_once() -> None:
    await a_group(Table()).close()


async def test_abandoning_refuses_what_flies_and_what_waits() -> None:
    table = Table()
    group = a_group(table)
    first = await blocked(table, group)
    second = group.submit("a")

    group.abandon()

    assert await fates([first, second]) == ["StorageUnavailable"] * 2
    assert (table.stored, group.depth) == ([], 0)


async def test_a_submitter_that_went_away_takes_nobody_along() -> None:
    table = Table()
    group = a_group(table)
    first = await blocked(table, group)
    gone, stays = group.submit("gone"), group.submit("stays")

    gone.cancel()
    table.door.set()

    assert await fates([first, stays]) == ["FIRST", "STAYS"]
    assert table.stored == ["first", "gone", "stays"]


async def test_the_sizes_of_batches_are_told() -> None:
    told: list[int] = []
    table = Table()
    group: GroupCommit[str, str] = GroupCommit(table.commit, max_batch=3, capacity=99, on_batch=told.append)

    await fates([group.submit(word) for word in "abcd"])

    assert told == [3, 1]


async def test_an_interruption_while_a_bad_item_is_sought_leaves_nobody_without_an_answer() -> None:
    table = Table()
    group = a_group(table)
    items = [group.submit(word) for word in ("a", "b", "poison", "c")]
    async with asyncio.timeout(5):
        while not table.batches:
            await asyncio.sleep(0)
        table.door.clear()  # the whole batch is refused; its first half does not end
        while len(table.batches) < 2 or not table.inside:
            await asyncio.sleep(0)

    group.abandon()

    async with asyncio.timeout(5):
        assert await fates(items) == ["StorageUnavailable"] * 4
    assert (table.batches[1], table.stored, group.depth) == (["a", "b"], [], 0)


async def test_whoever_watches_the_batches_costs_nobody_an_answer() -> None:
    def defect(n: int) -> None:
        raise ValueError("a metric is broken")

    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: reported.append(str(told["exception"])))
    group: GroupCommit[str, str] = GroupCommit(Table().commit, max_batch=9, capacity=9, on_batch=defect)

    async with asyncio.timeout(5):
        assert await group.submit("a") == "A"
        assert await group.submit("b") == "B"

    assert reported == ["a metric is broken"] * 2
