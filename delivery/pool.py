"""The attempts this process has in flight: a bounded pool, a bulkhead per destination.

A destination that hangs costs its own share only. Destinations without a recent success share at most half of the
pool, so that any number of dead ones leaves the other half to the living; and the last quarter is for a destination's
first slots only, so that busy ones which begin to hang all at once leave some to everybody else. Whose turn it is, is
decided by whoever asks (workers/turns.py); every operation takes constant time.
"""

from dataclasses import dataclass

FIRST_SLOTS = 2  # of a destination, which may come from the last quarter


@dataclass(slots=True)
class _Share:
    """One destination's part of the pool."""

    proven: bool  # it had a success recently
    in_flight: int = 0


class Pool:
    """Slots for attempts; a slot taken is given back by `release`."""

    __slots__ = ("_shares", "_unproven", "active", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.active = 0  # slots taken
        self._unproven = 0  # of these, by destinations without a recent success
        self._shares: dict[int, _Share] = {}

    def in_flight(self, destination: int) -> int:
        """Slots this destination holds."""
        share = self._shares.get(destination)
        return share.in_flight if share else 0

    def try_admit(self, destination: int, *, concurrency: int, proven: bool) -> bool:
        """Takes a slot if pool, bulkhead and fairness allow it; says whether it did."""
        share = self._share(destination, proven)
        size = self.size if share.in_flight < FIRST_SLOTS else self.size - self.size // 4
        room = share.in_flight < concurrency and self.active < size
        if not room or not (proven or self._unproven < self._unproven_size(share)):
            self._forget(destination, share)
            return False
        share.in_flight += 1
        self.active += 1
        self._unproven += not proven
        return True

    def release(self, destination: int) -> None:
        """Gives a slot back. Raises: KeyError if the destination holds none."""
        share = self._shares[destination]
        share.in_flight -= 1
        self.active -= 1
        self._unproven -= not share.proven
        self._forget(destination, share)

    def _unproven_size(self, share: _Share) -> int:
        """What destinations without a recent success may hold together; the last quarter of it is for those that hold
        nothing yet: a living one has its first success beside any few that hang.
        """
        half = max(self.size // 2, 1)
        return half - half // 4 if share.in_flight else half

    def _share(self, destination: int, proven: bool) -> _Share:
        """The destination's share; what it holds counts by what is known of it now."""
        share = self._shares.get(destination)
        if share is None:
            share = self._shares[destination] = _Share(proven)
        elif share.proven != proven:
            self._unproven += share.in_flight if not proven else -share.in_flight
            share.proven = proven
        return share

    def _forget(self, destination: int, share: _Share) -> None:
        if not share.in_flight:
            self._shares.pop(destination, None)
