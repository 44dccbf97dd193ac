"""What became of each event of a run, in memory that the load, the sink and the bench share: a row per event.

Instants are of the machine's monotonic clock in seconds, 0 for what has not happened. The load writes when an event was
due, what was answered and when; the sink writes when it arrived last, how often, and under which sequence.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any, Literal

_COUNTER_BYTES = 8
Column = Any  # a memoryview of numbers: what typeshed says of those with floats is not so


class Ledger:
    """A file of `capacity` rows, made by whoever comes first; every column is an array in it."""

    def __init__(self, path: Path, capacity: int) -> None:
        size = _COUNTER_BYTES + capacity * 32
        with path.open("a+b") as file:
            if file.seek(0, 2) != size:
                file.truncate(size)
            self._memory = memoryview(mmap.mmap(file.fileno(), size))
        self._arrivals = self._memory[:_COUNTER_BYTES].cast("Q")
        self._next = _COUNTER_BYTES
        self.due_at: Column = self._column(capacity * 8, "d")
        self.answered_at: Column = self._column(capacity * 8, "d")
        self.arrived_at: Column = self._column(capacity * 8, "d")
        self.sequence: Column = self._column(capacity * 4, "I")
        self.status: Column = self._column(capacity * 2, "H")
        self.copies: Column = self._column(capacity * 2, "H")
        self.path, self.capacity = path, capacity

    @property
    def arrivals(self) -> int:
        """Requests the sink has taken, of all events together."""
        return int(self._arrivals[0])

    def arrived(self, row: int, at: float, sequence: int) -> None:
        """The sink has taken the row's event."""
        self.arrived_at[row] = at
        self.sequence[row] = sequence
        self.copies[row] += 1
        self._arrivals[0] += 1

    def _column(self, size: int, kind: Literal["d", "I", "H"]) -> Column:
        column: Column = self._memory[self._next : self._next + size].cast(kind)
        self._next += size
        return column
