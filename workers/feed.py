"""From the log to the lanes: dispatch what is new, read on where a lane is behind, fetch the copies that are not at
hand.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from uuid import UUID

from storage import lanes as storage
from storage.database import Connection
from storage.errors import StorageUnavailable
from storage.groupcommit import GroupCommit
from storage.lanes import Copy, Dispatched, LaneKey, Open
from workers.lane import MAILBOX, Entry, Lane

PARTNERS_PER_DISPATCH = 64
EVENTS_PER_PARTNER = 64  # of one partner in one transaction; a long log takes turns with the others'
LANES_PER_READ = 64
COPIES_PER_READ = 64
COPY_BYTES = 64 << 20  # of bodies kept ahead in all lanes together
ENTRIES = 200_000  # kept ahead in all lanes together
SCANT = 8  # read of a lane at a time when that is reached
PAUSE_SECONDS = 0.2  # while the database is away
NOBODYS = -1  # the shard of a lane that was left

Place = tuple[int, int, datetime]


class Feed:
    """The lanes of one lease, and what fills them. `ready` is told of a lane that may have a candidate, `foreign` of an
    attempt that a predecessor left in flight."""

    def __init__(
        self,
        connection: Connection,
        token: UUID,
        shard_of: Callable[[int], int | None],
        ready: Callable[[Lane], None],
        foreign: Callable[[Lane, Open], None],
    ) -> None:
        self._connection, self._token = connection, token
        self._shard_of, self._ready, self._foreign = shard_of, ready, foreign
        self.lanes: dict[LaneKey, Lane] = {}
        self._news: dict[int, int] = {}  # partner -> a sequence known to be there (0: look)
        self._cursors: dict[int, int] = {}
        self._unsure = False  # a dispatch may have been done whose answer was lost
        self._has_news = asyncio.Event()
        self._passed = asyncio.Event()  # a dispatch has ended
        self._behind: dict[LaneKey, Lane] = {}
        self._is_behind = asyncio.Event()
        self._copies: GroupCommit[Place, Copy | None] = GroupCommit(
            self._read_copies, max_batch=COPIES_PER_READ, capacity=1 << 20
        )
        self.copy_bytes = 0
        self.entries = 0

    # --- what is told from outside --------------------------------------------------------------------

    def announce(self, heads: dict[int, int]) -> None:
        """These partners' logs reach these sequences (0: look); what is dispatched already is dropped."""
        for partner_id, sequence in heads.items():
            if sequence == 0 or sequence > self._cursors.get(partner_id, 0):
                self._news[partner_id] = sequence
        if self._news:
            self._has_news.set()

    async def dispatched(self) -> None:
        """The next dispatch has ended, or there is nothing to dispatch."""
        if self._news:
            self._passed.clear()
            await self._passed.wait()

    def open(self, keys: Iterable[LaneKey]) -> None:
        """These lanes are read from the table's head on, whatever was known of them."""
        for key in keys:
            lane = self._lane(key)
            if lane is not None:
                self.reread(lane)

    def compare(self, tails: dict[LaneKey, int]) -> None:
        """Lanes to which more was dispatched than is known here are read on: a dispatch that a broken connection left
        behind may have committed at any time since."""
        for key, tail in tails.items():
            if (lane := self._lane(key)) is not None:
                if lane.overlooks(tail):
                    lane.behind = lane.missed = True
                self.read_on(lane)

    def reread(self, lane: Lane) -> None:
        """All but what is flying is read again."""
        for entry in (*lane.queue, *lane.retrying):
            self.drop_copy(entry)
        self.entries -= len(lane.queue) + len(lane.retrying)
        lane.forget()
        self.read_on(lane)

    def read_on(self, lane: Lane) -> None:
        """The lane is read on if it is behind and has room, and the next of its free keys are looked up."""
        if (lane.should_read or lane.should_fetch) and self.lanes.get(lane.key) is lane:
            self._behind[lane.key] = lane
            self._is_behind.set()

    def leave(self, shards: set[int]) -> None:
        """The lanes of these shards are forgotten."""
        for key in [key for key, lane in self.lanes.items() if lane.shard in shards]:
            lane = self.lanes.pop(key)
            lane.shard = NOBODYS
            self._behind.pop(key, None)
            for entry in lane.entries():
                self.drop_copy(entry)
            self.entries -= len(lane.queue) + len(lane.retrying)
        self._cursors.clear()

    async def close(self) -> None:
        """Nothing is read any more."""
        await self._copies.close()

    # --- copies ---------------------------------------------------------------------------------------

    async def copy_of(self, entry: Entry) -> Copy | None:
        """The event's content; None if the log does not have it. Raises: StorageUnavailable."""
        if entry.copy is None:
            self._keep(entry, await self._copies.submit((entry.partner_id, entry.sequence, entry.received_at)))
        return entry.copy

    def drop_copy(self, entry: Entry) -> None:
        """The entry's copy is given up: it is settled, or it waits."""
        if entry.copy is not None:
            self.copy_bytes -= len(entry.copy.body)
            entry.copy = None

    def _keep(self, entry: Entry, copy: Copy | None) -> None:
        self.drop_copy(entry)
        entry.copy = copy
        self.copy_bytes += len(copy.body) if copy is not None else 0

    async def _read_copies(self, places: Sequence[Place]) -> list[Copy | None]:
        found = await storage.read_events(self._connection, places)
        return [found.get((partner_id, sequence)) for partner_id, sequence, _ in places]

    # --- dispatch -------------------------------------------------------------------------------------

    async def dispatch_for_ever(self) -> None:
        """What is announced is dispatched. Raises: LeaseLost."""
        while True:
            await self._has_news.wait()
            partners = list(self._news)[:PARTNERS_PER_DISPATCH]
            for partner_id in partners:
                del self._news[partner_id]
            if not self._news:
                self._has_news.clear()
            # Whom the configuration in force does not know yet stays in the log, and the next poll finds it again.
            known = [partner_id for partner_id in partners if self._shard_of(partner_id) is not None]
            try:
                await self._dispatch(known)
            except StorageUnavailable:
                self._unsure = True
                self.announce(dict.fromkeys(known, 0))
                await asyncio.sleep(PAUSE_SECONDS)
            self._passed.set()

    async def _dispatch(self, partners: list[int]) -> None:
        """The next events of these partners are in their lanes, and the partners announced again whose log goes on."""
        wanted = dict.fromkeys(partners, self.copy_bytes < COPY_BYTES and self.entries < ENTRIES)
        counts = dict.fromkeys(partners, 0)
        for event in await storage.dispatch(self._connection, self._token, wanted, EVENTS_PER_PARTNER):
            counts[event.partner_id] += 1
            self._cursors[event.partner_id] = event.sequence
            self._hand_on(event)
        if self._unsure:
            self.compare(await storage.tails(self._connection, self._token))
            self._unsure = False
        self.announce({partner_id: 0 for partner_id, n in counts.items() if n == EVENTS_PER_PARTNER})

    def _hand_on(self, event: Dispatched) -> None:
        for destination_id, previous, lane_key in event.lanes:
            lane = self._lane((event.partner_id, destination_id))
            if lane is None:
                continue
            copy = event.copy if self.copy_bytes < COPY_BYTES else None
            before = len(lane.queue)
            if self.entries < ENTRIES and lane.push(event.sequence, event.received_at, previous, lane_key, copy):
                if len(lane.queue) > before:
                    self.entries += 1
                    self.copy_bytes += len(copy.body) if copy is not None else 0
                self._ready(lane)
            else:
                lane.behind = lane.missed = True
                self.read_on(lane)

    # --- reading on -----------------------------------------------------------------------------------

    async def read_for_ever(self) -> None:
        """Lanes that are behind are read on while they have room. Raises: LeaseLost."""
        while True:
            await self._is_behind.wait()
            chosen = list(self._behind.values())[:LANES_PER_READ]
            for lane in chosen:
                del self._behind[lane.key]
            if not self._behind:
                self._is_behind.clear()
            try:
                await self._read([lane for lane in chosen if lane.should_read])
                await self._fetch([lane for lane in chosen if lane.should_fetch])
            except StorageUnavailable:
                for lane in chosen:
                    lane.reading = False
                    if lane.fetching:
                        lane.fetching = False
                        self.reread(lane)
                    self.read_on(lane)
                await asyncio.sleep(PAUSE_SECONDS)

    async def _read(self, chosen: list[Lane]) -> None:
        """What these lanes have open beyond their positions is in their mailboxes, as far as there is room."""
        if not chosen:
            return
        afters = {lane.key: lane.begin_read() for lane in chosen}
        anew = [key for key, after in afters.items() if after < 0]
        flying = await storage.read_flying(self._connection, anew) if anew else {}
        limit = MAILBOX if self.entries < ENTRIES else SCANT  # a full house slows everybody down, and stops nobody
        reads = await storage.read_lanes(self._connection, afters, limit)
        now = asyncio.get_running_loop().time()
        for lane in self._still_ours(chosen):
            if (read := reads.get(lane.key)) is None:
                del self.lanes[lane.key]
                continue
            before = len(lane.queue) + len(lane.retrying)
            found = [] if lane.stale else lane.took_over(flying.get(lane.key, []), now)
            for row in (*found, *lane.loaded(read, limit, now)):
                self._foreign(lane, row)
            self.entries += len(lane.queue) + len(lane.retrying) - before
            self._go_on(lane)

    async def _fetch(self, chosen: list[Lane]) -> None:
        """The next deliveries of keys whose eldest is settled are in their lanes."""
        if not chosen:
            return
        asked = {lane.key: lane.begin_fetch() for lane in chosen}
        found = await storage.read_keys(self._connection, {key: wanted for key, (_, wanted) in asked.items()})
        now = asyncio.get_running_loop().time()
        for lane in self._still_ours(chosen):
            before = len(lane.queue) + len(lane.retrying)
            mark, wanted = asked[lane.key]
            lane.fetched(mark, wanted, found.get(lane.key, {}), now)
            self.entries += len(lane.queue) + len(lane.retrying) - before
            self._go_on(lane)

    def _still_ours(self, lanes: list[Lane]) -> list[Lane]:
        """Those whose shard was not given back meanwhile."""
        return [lane for lane in lanes if self.lanes.get(lane.key) is lane]

    def _go_on(self, lane: Lane) -> None:
        self._ready(lane)
        self.read_on(lane)

    def _lane(self, key: LaneKey) -> Lane | None:
        """The lane, made when first needed; None where its partner is not ours (any more)."""
        found = self.lanes.get(key)
        if found is None and (shard := self._shard_of(key[0])) is not None:
            found = self.lanes[key] = Lane(key, shard)
        return found
