"""What a run does, drawn from its seed. The same seed is the same plan; the timing is the machine's."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

FIRST_SECONDS = 0.7  # of traffic before anything happens
LAST_SECONDS = 1.5  # of traffic after the last fault has begun, at least
EVERY_SECONDS = 2.5  # a fault begins about so often
MOST_FAULTS = 5


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault: when it begins, and the seed of its own choices."""

    at_seconds: float
    fault: str
    seed: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A run: so many seconds of traffic, and what strikes meanwhile."""

    seed: int
    seconds: float
    strikes: tuple[Strike, ...]

    def __str__(self) -> str:
        told = [f"{strike.at_seconds:.1f} s {strike.fault}" for strike in self.strikes]
        return ", ".join([f"seed {self.seed}, {self.seconds:g} s", *told])


def draw(seed: int, seconds: float, faults: Sequence[str], spans: Mapping[str, float] = MappingProxyType({})) -> Plan:
    """The plan of a seed. The faults are shuffled and dealt, so that none strikes twice before all have struck. One
    with a span of its own (in seconds) begins at once, and the run is as long as it takes."""
    dice = random.Random(seed)
    count = min(MOST_FAULTS, max(1, round((seconds - FIRST_SECONDS) / EVERY_SECONDS))) if faults else 0
    deck: list[str] = []
    while len(deck) < count:
        deck += dice.sample(sorted(faults), len(faults))
    dealt = sorted(deck[:count], key=lambda fault: fault not in spans)
    moments = sorted(dice.uniform(FIRST_SECONDS, max(FIRST_SECONDS, seconds - LAST_SECONDS)) for _ in range(count))
    strikes = tuple(
        Strike(FIRST_SECONDS if fault in spans else round(at, 2), fault, dice.getrandbits(32))
        for at, fault in zip(moments, dealt, strict=True)
    )
    return Plan(seed, max(seconds, *(spans.get(fault, 0) for fault in dealt), 0), strikes)
