"""The attempts this process has in flight: a bounded pool, a bulkhead per destination, fair turns for those who wait.

A destination that hangs costs its own share only. Destinations without a recent success share at most half of the pool,
so that any number of dead ones leaves the other half to the living. Synchronous and of one event loop: whoever waits
leaves a callback and gets it called with a slot already taken for it, destinations in turn, first come first served
within one. Every operation takes constant time, however many wait.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

Grant = Callable[[], None]


@dataclass(slots=True)
class _Share:
    """One destination's part of the pool."""

    concurrency: int
    proven: bool  # it had a success recently
    in_flight: int = 0
    waiting: deque[Grant] = field(default_factory=deque)


class Pool:
    """Slots for attempts; a slot taken is given back by `release`."""

    __slots__ = ("_active", "_granting", "_shares", "_turns", "_unproven", "_waiting", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._active = 0
        self._unproven = 0  # slots held by destinations without a recent success
        self._waiting = 0
        self._granting = False
        self._shares: dict[int, _Share] = {}
        self._turns: dict[bool, OrderedDict[int, None]] = {True: OrderedDict(), False: OrderedDict()}
        # destinations that wait and are below their own limit, by `proven`, in the order of their turns

    @property
    def active(self) -> int:
        """Slots taken."""
        return self._active

    @property
    def waiting(self) -> int:
        """Callbacks left by those who wait."""
        return self._waiting

    def in_flight(self, destination: int) -> int:
        """Slots this destination holds."""
        share = self._shares.get(destination)
        return share.in_flight if share else 0

    def try_admit(self, destination: int, *, concurrency: int, proven: bool) -> bool:
        """Takes a slot if pool, bulkhead and fairness allow it at once; says whether it did."""
        share = self._share(destination, concurrency, proven)
        if share.waiting or not self._has_room(share):
            self._forget(destination, share)
            return False
        self._take(share)
        return True

    def wait(self, destination: int, grant: Grant, *, concurrency: int, proven: bool) -> None:
        """Calls `grant` once, with a slot taken, when it is its turn; perhaps before this returns."""
        share = self._share(destination, concurrency, proven)
        share.waiting.append(grant)
        self._waiting += 1
        self._line_up(destination, share)
        self._grant()

    def give_up(self, destination: int, grant: Grant) -> bool:
        """The callback will not be called. False: it was already, and the slot is its owner's to release."""
        share = self._shares.get(destination)
        if share is None or grant not in share.waiting:
            return False
        share.waiting.remove(grant)
        self._waiting -= 1
        self._line_up(destination, share)
        self._forget(destination, share)
        return True

    def release(self, destination: int) -> None:
        """Gives a slot back, to whoever's turn it is. Raises: KeyError if the destination holds none."""
        share = self._shares[destination]
        if not share.in_flight:
            raise KeyError(destination)
        share.in_flight -= 1
        self._active -= 1
        self._unproven -= not share.proven
        self._line_up(destination, share)
        self._forget(destination, share)
        self._grant()

    def adjust(self, destination: int, *, concurrency: int, proven: bool) -> None:
        """The destination's limit, or what is known of it, has changed; those in flight stay."""
        if destination in self._shares:
            self._share(destination, concurrency, proven)
            self._grant()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _share(self, destination: int, concurrency: int, proven: bool) -> _Share:
        """The destination's share, its settings brought up to date."""
        share = self._shares.get(destination)
        if share is None:
            share = self._shares[destination] = _Share(concurrency, proven)
        elif (share.concurrency, share.proven) != (concurrency, proven):
            if share.proven != proven:
                self._unproven += share.in_flight if not proven else -share.in_flight
                self._turns[share.proven].pop(destination, None)
            share.concurrency, share.proven = concurrency, proven
            self._line_up(destination, share)
        return share

    def _has_room(self, share: _Share) -> bool:
        return share.in_flight < share.concurrency and self._active < self.size and self._takes(share.proven)

    def _takes(self, proven: bool) -> bool:
        """Whether destinations of this kind may have one slot more."""
        return proven or self._unproven < max(self.size // 2, 1)

    def _take(self, share: _Share) -> None:
        share.in_flight += 1
        self._active += 1
        self._unproven += not share.proven

    def _line_up(self, destination: int, share: _Share) -> None:
        """The destination has a turn to come exactly while it waits below its own limit."""
        turns = self._turns[share.proven]
        if not share.waiting or share.in_flight >= share.concurrency:
            turns.pop(destination, None)
        elif destination not in turns:
            turns[destination] = None

    def _forget(self, destination: int, share: _Share) -> None:
        if not share.in_flight and not share.waiting:
            self._shares.pop(destination, None)

    def _grant(self) -> None:
        """Hands free slots out in turns, the two kinds alternating. A callback that comes back here changes nothing."""
        if self._granting:
            return
        self._granting = True
        try:
            going = True
            while going:
                going = self._grant_one(proven=True) | self._grant_one(proven=False)
        finally:
            self._granting = False

    def _grant_one(self, proven: bool) -> bool:
        """One slot to the destination of this kind whose turn it is; says whether there was one to hand out."""
        turns = self._turns[proven]
        if not turns or self._active >= self.size or not self._takes(proven):
            return False
        destination, _ = turns.popitem(last=False)
        share = self._shares[destination]
        grant = share.waiting.popleft()
        self._waiting -= 1
        self._take(share)
        self._line_up(destination, share)
        grant()
        return True
