"""Names to addresses: one lookup per name at a time, remembered for seconds, waited for a few seconds at most.

The system's resolver blocks and has no deadline, so each lookup runs in a daemon thread of its own: a resolver that
hangs holds its thread, not the loop and not the end of the process. A name holds one thread, however many wait for it
and however long it hangs. Threads are bounded; names known to hang share half of them, so that the others find one.
Where none is free that is our trouble (`NoThread`) and says nothing about the name.
"""

import asyncio
import contextlib
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
THREADS = 128  # more names than that rarely hang at once, and glibc gives up after half a minute
START_PAUSE_SECONDS = 0.2  # before a thread that the system refused is asked for again

Lookup = Callable[[str], Sequence[str]]


class Unresolvable(Exception):
    """The name leads nowhere, or nobody answered in time."""


class NoThread(Exception):
    """The name was not looked up: every thread hangs, or the system gave none. Another time may do."""


def system_lookup(host: str) -> list[str]:
    """Every address the system knows for a name, in its order of preference. Raises: OSError, UnicodeError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


@dataclass(slots=True)
class _Entry:
    answer: "asyncio.Future[tuple[Address, ...]]"
    is_slow: bool = False  # its last lookup took longer than anybody waits
    is_begun: bool = False  # it has its thread
    until: float = float("inf")  # of the loop's clock; infinite while the lookup waits or runs


class Resolver:
    """Looks names up for one event loop."""

    __slots__ = ("_entries", "_lookup", "_slow_threads", "_threads")

    def __init__(self, lookup: Lookup = system_lookup) -> None:
        self._lookup = lookup
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._threads = asyncio.Semaphore(THREADS)
        self._slow_threads = asyncio.Semaphore(THREADS // 2)

    async def addresses(self, host: str, seconds: float = LOOKUP_SECONDS) -> tuple[Address, ...]:
        """The addresses of a name, at least one, in the system's order.

        Raises: Unresolvable; NoThread; TimeoutError where the caller's own seconds are fewer than a lookup has.
        """
        loop = asyncio.get_running_loop()
        entry = self._entries.get(host)
        if entry is None or entry.until <= loop.time():
            entry = self._begin(host, entry is not None and entry.is_slow, loop)
        try:
            async with asyncio.timeout(min(seconds, LOOKUP_SECONDS)):
                return await asyncio.shield(entry.answer)
        except TimeoutError as problem:
            if not entry.is_begun:
                raise NoThread("no thread was free to look the name up") from problem
            if seconds < LOOKUP_SECONDS:
                raise
            raise Unresolvable(f"the name did not resolve within {LOOKUP_SECONDS:g} s") from problem

    def _begin(self, host: str, is_slow: bool, loop: asyncio.AbstractEventLoop) -> _Entry:
        entry = self._entries[host] = _Entry(loop.create_future(), is_slow)
        self._entries.move_to_end(host)
        while len(self._entries) > REMEMBERED_NAMES:
            self._entries.popitem(last=False)
        entry.answer.add_done_callback(_retrieve)
        loop.create_task(self._run(host, entry, loop)).add_done_callback(_retrieve)
        return entry

    async def _run(self, host: str, entry: _Entry, loop: asyncio.AbstractEventLoop) -> None:
        """The entry has its answer, whenever the thread is done; until then the thread counts as taken."""
        async with self._slow_threads if entry.is_slow else contextlib.nullcontext(), self._threads:
            found: asyncio.Future[tuple[Address, ...]] = loop.create_future()
            while not self._start(host, found, loop):
                await asyncio.sleep(START_PAUSE_SECONDS)
            entry.is_begun = True
            begun_at = loop.time()
            try:
                addresses = await found
            except Unresolvable as problem:
                entry.until = loop.time() + FAILURE_REMEMBERED_SECONDS
                entry.answer.set_exception(problem)
            else:
                entry.until = loop.time() + REMEMBERED_SECONDS
                entry.answer.set_result(addresses)
            entry.is_slow = loop.time() - begun_at >= LOOKUP_SECONDS

    def _start(self, host: str, found: "asyncio.Future[tuple[Address, ...]]", loop: asyncio.AbstractEventLoop) -> bool:
        """Whether a thread looks the name up now: a system may be out of threads."""
        thread = threading.Thread(target=self._look, args=(host, found, loop), name="resolve", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        return True

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
