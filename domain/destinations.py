"""A destination: who receives from us, and the policy by which it is tried."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

DestinationState = Literal["active", "paused", "suspended"]


@dataclass(frozen=True, slots=True)
class Destination:
    """A destination's settings in force."""

    id: int
    name: str
    url: str
    headers: tuple[tuple[str, str], ...]  # configured ones, added to every attempt
    secrets: tuple[str, ...]  # `whsec_…`, newest first; every one signs while a rotation overlaps
    state: DestinationState
    timeout: timedelta
    concurrency: int  # attempts in flight, in the whole system
    rate: float | None  # attempts per second, in the whole system
    max_attempts: int
    retry_base: timedelta
    retry_factor: float
    retry_cap: timedelta
    suspend_after: timedelta
    on_park: Literal["continue", "hold"]
    breaker_failures: int
    breaker_reset: timedelta
    park_on: frozenset[int]  # statuses
