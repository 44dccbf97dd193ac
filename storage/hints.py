"""Hints: what ingest tells the owners by Redis. They save waiting, never carry truth (promise P12).

A stream per partner holds the highest new sequence of each batch; a bell per shard (a stream too) says which
partners' streams have something new, so nobody blocks on a key per partner. All keys of a shard carry the hash tag
`{shard}` and the database's incarnation. Whatever Redis does (slow, full, empty, restored, gone), the owner's poll of
the log finds the rest.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import redis.asyncio as redis
from redis.exceptions import RedisError, ResponseError

STREAM_LENGTH = 64  # an owner needs only the newest; a longer tail is for people who look
BELL_LENGTH = 256
WRITE_SECONDS = 1.0
PACE_SECONDS = 0.003  # between two calls while commits come one after the other; a lone one is told at once
BLOCK_MS = 1000
ANSWER_SECONDS = 3.0

# KEYS: for each partner with news its shard's bell and its own stream. ARGV: its id and its newest sequence; at the end
# the lengths of streams and bells. What somebody else may have put where a bell should be is taken out.
RING = """
local rung, bells = {}, {}
for i = 1, #KEYS, 2 do
    redis.pcall('XADD', KEYS[i + 1], 'MAXLEN', '~', ARGV[#ARGV - 1], '*', 's', ARGV[i + 1])
    if not rung[KEYS[i]] then
        rung[KEYS[i]] = {}
        bells[#bells + 1] = KEYS[i]
    end
    table.insert(rung[KEYS[i]], ARGV[i])
end
for _, bell in ipairs(bells) do
    local ring = {'XADD', bell, 'MAXLEN', '~', ARGV[#ARGV], '*', 'p', table.concat(rung[bell], ' ')}
    if redis.pcall(unpack(ring)).err then
        redis.call('DEL', bell)
        redis.call(unpack(ring))
    end
end
"""
# KEYS: partners' streams. Answers their newest sequences (0: none) and takes the entries out, and whatever else
# somebody may have put there.
HEAR = """
local heard = {}
for i = 1, #KEYS do
    local newest = redis.pcall('XREVRANGE', KEYS[i], '+', '-', 'COUNT', 1)
    heard[i] = not newest.err and newest[1] and tonumber(newest[1][2][2]) or 0
    redis.call('DEL', KEYS[i])
end
return heard
"""


def client(url: str, answer_seconds: float) -> "redis.Redis":
    """A client that waits so long and never repeats a command: a hint lost is a hint less."""
    return redis.Redis.from_url(
        url,
        socket_timeout=answer_seconds,
        socket_connect_timeout=1.0,
        retry=None,
        retry_on_error=[],
        health_check_interval=0,
        max_connections=4,
        protocol=2,
    )


class Keys:
    """Names of a shard's keys."""

    def __init__(self, incarnation: str) -> None:
        self._prefix = f"hookyard:{incarnation[:8]}"

    def bell(self, shard: int) -> str:
        return f"{self._prefix}:{{{shard}}}:bell"

    def stream(self, shard: int, partner_id: int) -> str:
        return f"{self._prefix}:{{{shard}}}:partner:{partner_id}"


class Announcer:
    """Ingest's side: tells owners of new sequences, after the commit, without ever holding up an answer.

    What Redis does not take is dropped and counted; `heads` are merged while a call runs, so the queue is bounded by
    the number of partners.
    """

    def __init__(self, url: str, keys: Keys) -> None:
        self._redis = client(url, WRITE_SECONDS)
        self._ring = self._redis.register_script(RING)
        self._keys = keys
        self._waiting: dict[tuple[int, int], int] = {}
        self._task: asyncio.Task[None] | None = None
        self.available = True
        self.dropped = 0

    @property
    def depth(self) -> int:
        """Partners whose hint has not gone out."""
        return len(self._waiting)

    def announce(self, heads: dict[tuple[int, int], int]) -> None:
        """Sequences per (shard, partner) will be told soon, or dropped."""
        self._waiting.update(heads)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send(), name="hints")

    async def close(self) -> None:
        """What waited was told, or dropped after a second."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=WRITE_SECONDS)
        await self._redis.aclose()

    async def _send(self) -> None:
        try:
            while self._waiting:
                heads, self._waiting = self._waiting, {}
                try:
                    await self._ring_bells(heads)
                    self.available = True
                    if self._waiting:  # what several commits have to tell goes out together
                        await asyncio.sleep(PACE_SECONDS)
                except Exception:  # noqa: BLE001 - whatever Redis makes of it, a hint lost is a hint less
                    self.available = False
                    self.dropped += len(heads)
                    await asyncio.sleep(0.1)  # an absent server is not asked for every batch
        finally:
            self._task = None

    async def _ring_bells(self, heads: dict[tuple[int, int], int]) -> None:
        keys = [key for shard, partner in heads for key in (self._keys.bell(shard), self._keys.stream(shard, partner))]
        arguments = [word for (_, partner), sequence in heads.items() for word in (partner, sequence)]
        await self._ring(keys=keys, args=[*arguments, STREAM_LENGTH, BELL_LENGTH])


class Listener:
    """The owner's side: hears which partners have news."""

    def __init__(self, url: str, keys: Keys) -> None:
        self._redis = client(url, BLOCK_MS / 1000 + ANSWER_SECONDS)
        self._hear = self._redis.register_script(HEAR)
        self._keys = keys
        self._positions: dict[int, bytes] = {}  # b"0": what rang before we listened is heard too, a bell is short
        self.available = True

    async def hear(self, shards: Iterable[int]) -> dict[int, int]:
        """The newest sequence of each partner of these shards that was announced; waits up to a second for the first.

        Never raises for Redis: without it there are no hints, after a pause.
        """
        wanted = set(shards)
        self._positions = {shard: self._positions.get(shard, b"0") for shard in wanted}
        if not wanted:
            await asyncio.sleep(BLOCK_MS / 1000)
            return {}
        try:
            heard = await self._listen()
            self.available = True
            return heard
        except Exception:  # noqa: BLE001 - whatever Redis says, the poll of the log finds what there is
            self.available = False
            self._positions = {}  # a server that came back may have forgotten everything
            await asyncio.sleep(BLOCK_MS / 1000)
            return {}

    async def close(self) -> None:
        """The connection is closed."""
        with contextlib.suppress(RedisError, OSError):
            await self._redis.aclose()

    async def _listen(self) -> dict[int, int]:
        bells = {self._keys.bell(shard): shard for shard in self._positions}
        positions: Any = {bell: self._positions[shard] for bell, shard in bells.items()}
        rung: dict[int, set[int]] = {}
        try:
            answer: Any = await self._redis.xread(positions, count=BELL_LENGTH, block=BLOCK_MS)
        except ResponseError as problem:
            if not str(problem).startswith("WRONGTYPE"):
                raise
            await self._clear_away(list(bells))  # one of them would silence all of them for ever
            return {}
        for bell, entries in answer or ():
            shard = bells[bell.decode()]
            self._positions[shard] = entries[-1][0]
            rung[shard] = {partner_id for _, fields in entries for partner_id in _named(fields)}
        return await self._newest(rung)

    async def _clear_away(self, bells: list[str]) -> None:
        """What somebody else put where bells should be is gone."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for bell in bells:
                await pipe.type(bell)
            kinds = await pipe.execute()
        wrong = [bell for bell, kind in zip(bells, kinds, strict=True) if kind not in (b"stream", b"none")]
        if wrong:
            await self._redis.delete(*wrong)

    async def _newest(self, rung: dict[int, set[int]]) -> dict[int, int]:
        if not rung:
            return {}
        pairs = [(shard, partner_id) for shard, partners in rung.items() for partner_id in partners]
        newest = await self._hear(keys=[self._keys.stream(shard, partner_id) for shard, partner_id in pairs])
        return {partner_id: sequence for (_, partner_id), sequence in zip(pairs, newest, strict=True)}


def _named(fields: dict[bytes, bytes]) -> Iterator[int]:
    """The partners a ring of the bell names; what else may stand there is passed over."""
    for word in fields.get(b"p", b"").split():
        if word.isdigit() and len(word) <= 10 and int(word) < 1 << 31:
            yield int(word)
