"""One run of a load, as the ledger has it: what was accepted, delivered, lost, and how long it took."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.ledger import Ledger

ACCEPTED = 202


@dataclass(frozen=True, slots=True)
class Run:
    """The rows from `first` on, of which `sent` were sent; `copies` is how many destinations each event is for."""

    ledger: Ledger
    first: int
    sent: int
    partners: int
    began_at: float
    ended_at: float
    load_seconds: float  # of CPU
    copies: int = 1
    is_strict: bool = True

    @property
    def rows(self) -> range:
        return range(self.first, self.first + self.sent)

    @property
    def accepted(self) -> list[int]:
        return [row for row in self.rows if self.ledger.status[row] == ACCEPTED]

    @property
    def failed(self) -> int:
        """Requests that were answered otherwise, or not at all."""
        return self.sent - len(self.accepted)

    @property
    def lost(self) -> int:
        """Accepted events that did not arrive everywhere."""
        return sum(self.ledger.copies[row] < self.copies for row in self.accepted)

    @property
    def repeated(self) -> int:
        """Arrivals beyond those that were due."""
        return sum(max(0, self.ledger.copies[row] - self.copies) for row in self.rows)

    @property
    def overtaken(self) -> int:
        """Events that arrived after a later one of their partner, where there is one destination and strict order."""
        if self.copies != 1 or not self.is_strict:
            return 0
        lines = (range(self.first + n, self.first + self.sent, self.partners) for n in range(self.partners))
        return sum(map(self._overtaken, lines))

    @property
    def seconds(self) -> float:
        """From the first request to the last answer."""
        return self.ended_at - self.began_at

    @property
    def arrived_at(self) -> float:
        """When the last event arrived."""
        return max((self.ledger.arrived_at[row] for row in self.rows), default=0.0)

    def accepted_per_second(self) -> float:
        return len(self.accepted) / self.seconds

    def delivered_per_second(self) -> float:
        """Over all the time from the first request to the last arrival."""
        arrived = sum(self.ledger.arrived_at[row] > 0 for row in self.rows)
        return arrived / (self.arrived_at - self.began_at) if arrived else 0.0

    def answer_ms(self) -> list[float]:
        """From when a request was due to its 202, ascending."""
        ledger = self.ledger
        return sorted((ledger.answered_at[row] - ledger.due_at[row]) * 1000 for row in self.accepted)

    def lag_ms(self) -> list[float]:
        """From when a request was due to its arrival at the (last) destination, ascending."""
        ledger = self.ledger
        arrived = (row for row in self.accepted if ledger.arrived_at[row])
        return sorted((ledger.arrived_at[row] - ledger.due_at[row]) * 1000 for row in arrived)

    def _overtaken(self, rows: Iterable[int]) -> int:
        ledger = self.ledger
        line = sorted((ledger.sequence[row], ledger.arrived_at[row]) for row in rows if ledger.arrived_at[row])
        return sum(later[1] < earlier[1] for earlier, later in itertools.pairwise(line))


def percentile(ascending: Sequence[float], share: float) -> float:
    """The value below which that share of them lies; 0 of none."""
    return ascending[min(len(ascending) - 1, int(len(ascending) * share))] if ascending else 0.0
