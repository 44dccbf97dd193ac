"""Names to addresses: one lookup per name at a time, remembered for seconds, never longer than a few seconds' wait.

The system's resolver blocks and has no deadline, so each lookup runs in a daemon thread of its own: a resolver that
hangs holds its thread, not the loop, not other names, and not the end of the process.
"""

import asyncio
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from domain.addresses import Address

LOOKUP_SECONDS = 5.0  # as smokescreen and Hook0
REMEMBERED_SECONDS = 5.0  # getaddrinfo tells no time to live; long enough to spare a lookup per delivery
FAILURE_REMEMBERED_SECONDS = 1.0
REMEMBERED_NAMES = 4096
LOOKUPS_AT_ONCE = 64

Lookup = Callable[[str], Sequence[str]]


class Unresolvable(Exception):
    """The name leads nowhere, or nobody answered in time."""


def system_lookup(host: str) -> list[str]:
    """Every address the system knows for a name, in its order of preference. Raises: OSError, UnicodeError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


@dataclass(slots=True)
class _Entry:
    answer: "asyncio.Future[tuple[Address, ...]]"
    until: float  # of the loop's clock; infinite while the lookup runs


class Resolver:
    """Looks names up for one event loop."""

    __slots__ = ("_entries", "_lookup", "_places")

    def __init__(self, lookup: Lookup = system_lookup) -> None:
        self._lookup = lookup
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._places = asyncio.Semaphore(LOOKUPS_AT_ONCE)

    async def addresses(self, host: str) -> tuple[Address, ...]:
        """The addresses of a name, at least one, in the system's order. Raises: Unresolvable."""
        loop = asyncio.get_running_loop()
        entry = self._entries.get(host)
        if entry is None or entry.until <= loop.time():
            entry = self._begin(host, loop)
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                return await asyncio.shield(entry.answer)
        except TimeoutError as problem:
            raise Unresolvable(f"the name did not resolve within {LOOKUP_SECONDS:g} s") from problem

    def _begin(self, host: str, loop: asyncio.AbstractEventLoop) -> _Entry:
        entry = self._entries[host] = _Entry(loop.create_future(), float("inf"))
        self._entries.move_to_end(host)
        while len(self._entries) > REMEMBERED_NAMES:
            self._entries.popitem(last=False)
        entry.answer.add_done_callback(_retrieve)
        loop.create_task(self._run(host, entry, loop)).add_done_callback(_retrieve)
        return entry

    async def _run(self, host: str, entry: _Entry, loop: asyncio.AbstractEventLoop) -> None:
        """Holds a place until the thread is done, however long nobody waits for it any more."""
        async with self._places:
            found: asyncio.Future[tuple[Address, ...]] = loop.create_future()
            threading.Thread(target=self._look, args=(host, found, loop), name="resolve", daemon=True).start()
            try:
                addresses = await found
            except Unresolvable as problem:
                entry.until = loop.time() + FAILURE_REMEMBERED_SECONDS
                entry.answer.set_exception(problem)
            else:
                entry.until = loop.time() + REMEMBERED_SECONDS
                entry.answer.set_result(addresses)

    def _look(self, host: str, found: "asyncio.Future[tuple[Address, ...]]", loop: asyncio.AbstractEventLoop) -> None:
        """In the thread. A loop that has closed meanwhile is told nothing."""
        try:
            addresses = tuple(ip_address(text) for text in self._lookup(host))
        except (OSError, ValueError):
            addresses = ()

        def tell() -> None:
            if found.done():
                return
            if addresses:
                found.set_result(addresses)
            else:
                found.set_exception(Unresolvable("the name does not resolve"))

        try:
            loop.call_soon_threadsafe(tell)
        except RuntimeError:
            return


def _retrieve(future: "asyncio.Future[tuple[Address, ...]] | asyncio.Task[None]") -> None:
    """Marks a failure as seen: nobody may be waiting for it."""
    if not future.cancelled():
        future.exception()
