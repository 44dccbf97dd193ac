"""The journal: outcomes and claims, saved in group commits under the lease.

It is ingest's GroupCommit again. What is sent is sent until its fate is known: while the database is away the lanes of
what waits here stand still, and after a COMMIT whose answer was lost the same batch is sent again (it is idempotent).
"""

from asyncio import Future
from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from delivery.clock import boot_seconds
from storage.database import Connection
from storage.errors import StorageUnavailable
from storage.groupcommit import GroupCommit
from storage.lanes import Begun, Claim, Outcome, Saved, save
from storage.outage import Outage

MAX_BATCH = 256
CAPACITY = 40_000  # twice the largest pool: each attempt has at most one outcome and one claim here


class Item:
    """An outcome or a claim on its way; `sent_at` (boot_seconds) is when it may first have reached the database."""

    __slots__ = ("sent_at", "transition")

    def __init__(self, transition: Outcome | Claim) -> None:
        self.transition = transition
        self.sent_at: float | None = None


class Journal:
    """One lease's journal. A future fails only with LeaseLost or BadData."""

    def __init__(
        self,
        connection: Connection,
        token: UUID,
        *,
        on_batch: Callable[[int], None] = lambda n: None,
        outage: Outage | None = None,
    ) -> None:
        self._connection, self._token, self._outage = connection, token, outage or Outage()
        self._abandoned = False
        self._group: GroupCommit[Item, Saved | Begun] = GroupCommit(
            self._commit, max_batch=MAX_BATCH, capacity=CAPACITY, on_batch=on_batch
        )

    @property
    def depth(self) -> int:
        """Transitions whose commit is not known."""
        return self._group.depth

    def submit(self, item: Item) -> "Future[Saved | Begun]":
        """The item's fate, once it is known."""
        return self._group.submit(item)

    async def close(self) -> None:
        """Everything submitted is saved."""
        await self._group.close()

    def abandon(self) -> None:
        """What is not known to be saved is given up: a successor will see what became of it."""
        self._abandoned = True
        self._group.abandon()
        self._outage.passed("journal")

    async def _commit(self, batch: Sequence[Item]) -> list[Saved | Begun]:
        now = boot_seconds()
        for item in batch:
            item.sent_at = item.sent_at or now
        outcomes = [item.transition for item in batch if isinstance(item.transition, Outcome)]
        claims = [item.transition for item in batch if isinstance(item.transition, Claim)]
        try:
            saved, begun = await save(self._connection, self._token, outcomes, claims)
        except StorageUnavailable as problem:
            self._outage.met("journal", problem)
            saved, begun = await self._until_known()(save, self._connection, self._token, outcomes, claims)
        self._outage.passed("journal")
        fates: dict[type, Iterator[Saved | Begun]] = {Outcome: iter(saved), Claim: iter(begun)}
        return [next(fates[type(item.transition)]) for item in batch]

    def _until_known(self) -> AsyncRetrying:
        return AsyncRetrying(
            retry=retry_if_exception_type(StorageUnavailable),
            stop=lambda state: self._abandoned,
            wait=wait_random_exponential(multiplier=0.05, max=1.0),
            reraise=True,
        )
