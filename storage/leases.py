"""Leases of shards: who walks which partners' logs (promise P5). The database's clock decides, see sql/leases.sql."""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from storage.database import Connection


@dataclass(frozen=True, slots=True)
class Lease:
    """What a worker holds after tending: its shards with their epochs, its fair share, and how many workers live."""

    epochs: dict[int, int]
    share: int
    living: int


async def tend(
    connection: Connection, token: UUID, name: str, span: timedelta, *, first: bool = True, dead: str | None = None
) -> Lease:
    """The lease is kept for another span and free shards taken up to the fair share; only a `first` call makes one.

    Leases of workers whose names begin with `dead` end with it: their processes are known to be gone.

    Raises: LeaseLost, StorageUnavailable.
    """
    ((shards, epochs, share, living),) = await connection.fetch(
        "SELECT * FROM tend_lease(%s, %s, %s, %s, %s)", (token, name, span, first, dead)
    )
    return Lease(dict(zip(shards or (), epochs or (), strict=True)), share, living)


async def give_back(connection: Connection, token: UUID, shards: list[int] | None = None) -> None:
    """These shards are free for others; without `shards` all of them, and the lease has ended."""
    await connection.fetch("SELECT give_back(%s, %s::int[])", (token, shards))
