"""What a run does, drawn from its seed. The same seed is the same plan; the timing is the machine's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

FIRST_SECONDS = 2.0  # of traffic before anything happens
LAST_SECONDS = 2.0  # of traffic after the last fault has begun, at least
EVERY_SECONDS = 4.5  # a fault begins about so often
MAX_CONNECTIONS = 28  # of PostgreSQL, where a run is short of them; `up` with two of each wants about 30


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
    max_connections: int | None = None

    def __str__(self) -> str:
        told = [f"{strike.at_seconds:4.1f} s {strike.fault}" for strike in self.strikes]
        short = [f"at most {self.max_connections} connections"] if self.max_connections else []
        return ", ".join([f"seed {self.seed}, {self.seconds:g} s", *short, *told])


def draw(seed: int, seconds: float, faults: Sequence[str], few_connections: bool | None = None) -> Plan:
    """The plan of a seed. The faults are shuffled and dealt, so that none strikes twice before all have struck."""
    dice = random.Random(seed)
    if few_connections is None:
        few_connections = dice.random() < 0.15
    count = max(1, round((seconds - FIRST_SECONDS) / EVERY_SECONDS)) if faults else 0
    deck: list[str] = []
    while len(deck) < count:
        deck += dice.sample(sorted(faults), len(faults))
    moments = sorted(dice.uniform(FIRST_SECONDS, max(FIRST_SECONDS, seconds - LAST_SECONDS)) for _ in range(count))
    strikes = tuple(
        Strike(round(at, 2), fault, dice.getrandbits(32)) for at, fault in zip(moments, deck[:count], strict=True)
    )
    return Plan(seed, seconds, strikes, MAX_CONNECTIONS if few_connections else None)
