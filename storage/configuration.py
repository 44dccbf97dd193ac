"""The configuration in force, as each process sees it: an immutable snapshot, replaced within a second of a change.
With it comes the time: what signs, verifies or waits for a date goes by the database's clock, not by its own.

Processes poll `installation.config_version` (LISTEN does not survive a connection pooler). A snapshot that cannot be
refreshed stays in force: an outage of the database must not forget partners.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from domain.destinations import Destination
from domain.partners import Partner
from storage.database import Connection
from storage.ending import end
from storage.outage import Outage
from storage.secrets import DESTINATION_SECRET, DESTINATION_URL, PARTNER_SECRET, Vault

POLL_SECONDS = 0.5  # an edit is effective everywhere within 2 s

VERSION = """
SELECT config_version, shards, incarnation::text,
       (SELECT min(expires_at) FROM (SELECT expires_at FROM partner_secrets WHERE expires_at > now()
                                     UNION ALL SELECT expires_at FROM destination_secrets WHERE expires_at > now()) s),
       clock_timestamp()
FROM installation
"""
PARTNERS = """
SELECT p.id, p.name, p.shard, p.state, p.verify, p.verify_options, p.max_backlog, p.on_backlog_full, p.rate, p.max_body,
       p.dedupe, p.type, p.order_key, p.removed_at IS NOT NULL,
       ARRAY(SELECT s.sealed FROM partner_secrets s WHERE s.partner_id = p.id
             AND (s.expires_at IS NULL OR s.expires_at > now()) ORDER BY s.id DESC)
FROM partners p
"""
# From the state on the columns are the fields of a Destination, in their order.
DESTINATIONS = """
SELECT d.id, d.name, d.removed_at IS NOT NULL, d.sealed_url, d.sealed_headers,
       ARRAY(SELECT s.sealed FROM destination_secrets s WHERE s.destination_id = d.id
             AND (s.expires_at IS NULL OR s.expires_at > now()) ORDER BY s.id DESC),
       d.state, d.timeout_ms * interval '1 ms', d.concurrency, d.rate, d.max_attempts,
       d.retry_base_ms * interval '1 ms', d.retry_factor, d.retry_cap_ms * interval '1 ms',
       d.suspend_after_ms * interval '1 ms', d.on_park, d.breaker_failures,
       d.breaker_reset_ms * interval '1 ms', d.park_on
FROM destinations d
"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything configured, at one version. Removed partners and destinations are only found by id."""

    version: int
    shards: int
    incarnation: str
    partners: Mapping[str, Partner]
    partners_by_id: Mapping[int, Partner]
    destinations: Mapping[str, Destination]
    destinations_by_id: Mapping[int, Destination]
    removed_destinations: frozenset[int]


EMPTY = Snapshot(0, 1, "", {}, {}, {}, {}, frozenset())


class Configuration:
    """Keeps `snapshot` current. `on_change` is called after each replacement."""

    def __init__(
        self,
        database_url: str,
        vault: Vault,
        *,
        on_change: Callable[[Snapshot], None] = lambda snapshot: None,
        outage: Outage | None = None,
    ) -> None:
        self._connection = Connection(database_url, "hookyard configuration")
        self._vault, self._on_change, self._outage = vault, on_change, outage or Outage()
        self._expiry: datetime | None = None
        self._task: asyncio.Task[None] | None = None
        self._clock = (_seconds(), datetime.fromtimestamp(0, UTC))  # this machine's, and the database's then
        self.snapshot = EMPTY
        self.failing = False  # the last poll failed: `snapshot` may be out of date

    async def start(self) -> None:
        """The first snapshot is loaded, and kept current from now on. Raises: StorageUnavailable, CannotOpen."""
        await self.refresh()
        self._task = asyncio.create_task(self._poll(), name="configuration")

    async def close(self) -> None:
        """Polling has ended."""
        if self._task is not None:
            await end([self._task])
        await self._connection.close()

    @property
    def available(self) -> bool:
        """The last poll was answered."""
        return self._connection.available

    def now(self) -> datetime:
        """The database's time, as this machine's monotonic clock carries it on from the last poll."""
        read_at, moment = self._clock
        return moment + timedelta(seconds=_seconds() - read_at)

    async def refresh(self) -> None:
        """`snapshot` is at the database's version. Raises: StorageUnavailable, CannotOpen."""
        ((version, shards, incarnation, expiry, now),) = await self._connection.fetch(VERSION)
        self._clock = (_seconds(), now)
        expired = self._expiry is not None and now >= self._expiry
        if version == self.snapshot.version and not expired:
            return
        partners = [self._partner(row) for row in await self._connection.fetch(PARTNERS)]
        destinations = [self._destination(row) for row in await self._connection.fetch(DESTINATIONS)]
        self._expiry = expiry
        self.snapshot = Snapshot(
            version,
            shards,
            incarnation,
            {partner.name: partner for partner, removed in partners if not removed},
            {partner.id: partner for partner, _ in partners},
            {destination.name: destination for destination, removed in destinations if not removed},
            {destination.id: destination for destination, _ in destinations},
            frozenset(destination.id for destination, removed in destinations if removed),
        )
        self._on_change(self.snapshot)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self.refresh()
                self.failing = False
                self._outage.passed("configuration")
            except Exception as problem:  # noqa: BLE001 - the poll must outlive whatever it meets
                self.failing = True
                self._outage.met("configuration", problem)

    def _partner(self, row: Sequence[Any]) -> tuple[Partner, bool]:
        *fields, removed, sealed = row
        identity, name, shard, state, verify, options, *rest = fields
        secrets = tuple(self._vault.open_text(secret, PARTNER_SECRET, name) for secret in sealed)
        return Partner(identity, name, shard, state, verify, options, secrets, *rest), removed

    def _destination(self, row: Sequence[Any]) -> tuple[Destination, bool]:
        identity, name, removed, url, headers, sealed, *policy, park_on = row
        policy.append(frozenset(park_on))
        if removed:  # it is never called: what is sealed stays so, and the key it needs may be gone
            return Destination(identity, name, "", (), (), *policy), True
        url, headers = self._vault.open_text(url, DESTINATION_URL, name), self._vault.open_headers(headers, name)
        secrets = tuple(self._vault.open_text(secret, DESTINATION_SECRET, name) for secret in sealed)
        return Destination(identity, name, url, headers, secrets, *policy), False


def _seconds() -> float:
    """Of this machine's clock that never jumps, and goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
