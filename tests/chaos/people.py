"""People who work meanwhile: they pause, edit, replay, discard and subscribe, and note what they did and when."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tests.acceptance.receiver import Arrival
from tests.chaos.desk import Deed, Desk
from tests.chaos.town import DESTINATIONS, HOLDING, KINDS, VARIED, Mail

EVERY_SECONDS = 0.7
AGAIN_SECONDS = 0.3
PAUSED_SECONDS = (0.3, 5.0)
ORDERS = ("partner", "key", "none")


@dataclass(frozen=True, slots=True)
class Ban:
    """What nobody should see from soon after the first moment until the second."""

    what: str
    concerns: Callable[[Arrival], bool]
    since: float
    until: float


@dataclass(slots=True)
class People:
    """What they do is drawn by `dice`; what they replay is no older than `since` (ISO 8601)."""

    desk: Desk
    mail: Mail
    dice: random.Random
    since: str
    ledger_url: str
    deeds: list[Deed] = field(default_factory=list)
    bans: list[Ban] = field(default_factory=list)
    _paused: set[str] = field(default_factory=set)
    _moved_at: float = 0.0
    _until: float = 0.0

    async def work(self, until: float) -> None:
        """Until then (time.monotonic); what was paused goes on again."""
        self._until = until
        chores: Sequence[Callable[[], Awaitable[object]]] = (
            self._pause_a_destination,
            self._pause_a_partner,
            self._edit,
            self._edit,
            self._move_the_ledger,
            self._replay,
            self._replay,
            self._discard,
            *[self._subscribe_otherwise] * 4,
            self.release,
            self.release,
        )
        async with asyncio.TaskGroup() as tasks:
            while time.monotonic() < until:
                tasks.create_task(self._chore(self.dice.choice(chores)))
                await asyncio.sleep(self.dice.uniform(0, 2 * EVERY_SECONDS))

    async def release(self) -> None:
        """What holds its lane is replayed, or now and then discarded."""
        which = ("--destination", HOLDING, "--since", self.since, "--yes", "--json")
        if self.dice.random() < 0.75:
            await self._do("replay", *which)
        else:
            await self._do("discard", *which, "--why", "chaos")

    async def _chore(self, chore: Callable[[], Awaitable[object]]) -> None:
        await chore()

    async def _do(self, *argv: str) -> Deed:
        self.deeds.append(deed := await self.desk.do(*argv))
        return deed

    async def _insist(self, *argv: str) -> Deed:
        while not (deed := await self._do(*argv)).is_done:
            await asyncio.sleep(AGAIN_SECONDS)
        return deed

    async def _pause_a_destination(self) -> None:
        name = self.dice.choice(("slow", "flaky", "narrow", "keyed", "free"))
        await self._pause("destination", name, lambda arrival: arrival.place == name)

    async def _pause_a_partner(self) -> None:
        name = self.dice.choice(("bolt", "dune"))
        await self._pause("partner", name, lambda arrival: arrival.partner == name)

    async def _pause(self, kind: str, name: str, concerns: Callable[[Arrival], bool]) -> None:
        if name in self._paused:
            return
        self._paused.add(name)
        paused = await self._do(kind, "pause", name)
        pause_seconds = self.dice.uniform(*PAUSED_SECONDS)
        await asyncio.sleep(max(0.0, min(pause_seconds, self._until - time.monotonic())))
        until = time.monotonic()
        await self._insist(kind, "resume", name)
        self._paused.discard(name)
        if paused.is_done:
            self.bans.append(Ban(f"{kind} {name} is paused", concerns, paused.ended_at, until))

    async def _edit(self) -> None:
        """Settings that change how a delivery is made, not what becomes of it."""
        name = self.dice.choice(("slow", "flaky", "free", "keyed"))
        concurrency = self.dice.randint(1, DESTINATIONS[name].concurrency)
        option = self.dice.choice(
            (
                ("--concurrency", str(concurrency)),
                ("--header", f"x-edition: {self.dice.randrange(100)}"),
                ("--rate", f"{self.dice.randint(20, 60)}/s"),
                ("--rate", "none"),
                ("--breaker-failures", str(self.dice.randint(3, 20))),
            )
        )
        await self._do("destination", "edit", name, *option)

    async def _move_the_ledger(self) -> None:
        """To its other address, of two."""
        if "ledger" in self._paused:
            return
        self._paused.add("ledger")
        there = self.dice.random() < 0.5
        moved = await self._insist("destination", "edit", "ledger", "--url", self.ledger_url + "/" * there)
        await asyncio.sleep(max(0.0, min(self.dice.uniform(*PAUSED_SECONDS), self._until - time.monotonic())))
        old = "/ledger" if there else "/ledger/"
        self.bans.append(Ban(f"ledger has moved from {old}", lambda a: a.path == old, moved.ended_at, time.monotonic()))
        self._paused.discard("ledger")

    async def _replay(self) -> None:
        """What picky refused, or what was delivered already."""
        where: tuple[str, ...]
        known = [event.event for event in self.mail.posted if event.acked_at and event.partner == "acme"]
        if self.dice.random() < 0.5 or not known:
            state = self.dice.choice(("parked", "parked", "discarded"))
            where = ("--destination", "picky", "--state", state, "--since", self.since, "--yes")
        else:
            chosen = self.dice.sample(known, min(len(known), self.dice.randint(1, 5)))
            where = (*chosen, "--destination", self.dice.choice(("slow", "ledger")), "--state", "delivered")
        await self._do("replay", *where, "--json")

    async def _discard(self) -> None:
        reason = self.dice.choice(("rejected", "attempts_exhausted"))
        which = ("--destination", "picky", "--reason", reason, "--since", self.since, "--yes", "--why", "chaos")
        await self._do("discard", *which, "--json")

    async def _subscribe_otherwise(self) -> None:
        if self.dice.random() < 0.2:
            await self._do("unsubscribe", *VARIED)
            return
        types = () if self.dice.random() < 0.5 else ("--types", self.dice.choice(KINDS))
        await self._do("subscribe", *VARIED, "--order", self.dice.choice(ORDERS), *types, "--json")
