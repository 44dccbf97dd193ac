"""One writer, whole batches: whatever arrived while the last commit ran is the next batch.

A lone item is committed at once. Where a batch had company, more is about to come: the next one waits a millisecond for
it, and each of its items costs less. Ingest and the workers' journal are this same class. One bad item never fails its
batch: on `BadData` the batch is halved until the culprit is alone (promise P17).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from storage.errors import BadData, StorageUnavailable

Item = TypeVar("Item")
Answer = TypeVar("Answer")


COMPANY = 8  # items in a batch after which the next one waits
LINGER_SECONDS = 0.001


class QueueFull(Exception):
    """The queue before the commit is at its bound of items or bytes."""


class GroupCommit(Generic[Item, Answer]):
    """Commits items in batches by one flight at a time; `submit` returns an item's own answer after the commit.

    `commit` gets a batch and returns its answers in order; it raises `BadData` if an item is to blame, anything else
    for all of them alike.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        *,
        max_batch: int,
        max_batch_bytes: int = 1 << 62,
        capacity: int,
        capacity_bytes: int = 1 << 62,
        size: Callable[[Item], int] = lambda item: 0,
        on_batch: Callable[[int], None] = lambda n: None,
    ) -> None:
        self._commit, self._size, self._on_batch = commit, size, on_batch
        self._max_batch, self._max_batch_bytes = max_batch, max_batch_bytes
        self.capacity, self._capacity_bytes = capacity, capacity_bytes
        self._queue: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._bytes = 0
        self._flying = 0
        self._flight: asyncio.Task[None] | None = None
        self._closed = self._abandoned = False

    @property
    def depth(self) -> int:
        """Items queued or in the running commit."""
        return len(self._queue) + self._flying

    def submit(self, item: Item) -> asyncio.Future[Answer]:
        """Queues an item; the future is done after its commit. Raises: QueueFull at once, StorageUnavailable if
        closed.
        """
        if self._closed:
            raise StorageUnavailable("stopping")
        if self.depth >= self.capacity or self._bytes + self._size(item) > self._capacity_bytes:
            raise QueueFull(f"{self.depth} of {self.capacity} items wait for their commit")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._queue.append((item, future))
        self._bytes += self._size(item)
        if self._flight is None:
            self._flight = loop.create_task(self._fly(), name="group-commit")
        return future

    async def close(self) -> None:
        """Everything queued is committed or refused; nothing more is taken."""
        self._closed = True
        if self._flight is not None:
            await asyncio.wait([self._flight])

    def abandon(self) -> None:
        """What is queued or in the running commit is refused, whatever becomes of it; nothing more is taken."""
        self._closed = self._abandoned = True
        if self._flight is not None:
            self._flight.cancel()

    async def _fly(self) -> None:
        busy = False
        try:
            while self._queue and not self._abandoned:
                # Whoever submits in this turn of the loop comes along: an outcome and its lane's next claim, for one.
                await asyncio.sleep(LINGER_SECONDS if busy and len(self._queue) < self._max_batch else 0)
                batch = self._next_batch()
                busy = len(batch) >= COMPANY
                self._flying = len(batch)
                try:
                    await self._settle(batch)
                finally:
                    _fail(batch, StorageUnavailable("interrupted"))  # where the flight was cancelled on its way
                    self._flying = 0
                    self._bytes -= sum(self._size(item) for item, _ in batch)
        finally:
            self._flight = None
            self._refuse_rest()

    def _next_batch(self) -> list[tuple[Item, asyncio.Future[Answer]]]:
        """The longest waiting, up to the bounds; one at least."""
        batch: list[tuple[Item, asyncio.Future[Answer]]] = []
        size = 0
        while self._queue and len(batch) < self._max_batch:
            size += self._size(self._queue[0][0])
            if batch and size > self._max_batch_bytes:
                break
            batch.append(self._queue.popleft())
        return batch

    async def _settle(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        """Every future of the batch is done. A cancellation leaves the rest to `_fly`."""
        try:
            answers = await self._commit([item for item, _ in batch])
            if len(answers) != len(batch):
                raise RuntimeError(f"{len(batch)} items were committed, {len(answers)} answered")
        except BadData as problem:
            if len(batch) == 1:
                _fail(batch, problem)
                return
            middle = len(batch) // 2
            await self._settle(batch[:middle])
            await self._settle(batch[middle:])
        except Exception as problem:  # noqa: BLE001 - whatever it is, every submitter must learn of it
            _fail(batch, problem)
        else:
            # In a turn of its own: who only watches must not come between a commit and its answers.
            asyncio.get_running_loop().call_soon(self._on_batch, len(batch))
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)

    def _refuse_rest(self) -> None:
        """Only after an abandoned flight is anything left here."""
        rest = list(self._queue)
        self._queue.clear()
        self._bytes = 0 if not self._flying else self._bytes
        _fail(rest, StorageUnavailable("interrupted"))


def _fail(batch: list[tuple[Item, asyncio.Future[Answer]]], problem: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(problem)
            future.exception()  # a submitter that is gone must not make the loop complain
