"""The pipeline in other shapes: more destinations, fewer, larger bodies, failing attempts, many partners."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from bench.scenarios.pipeline import closed_loop, paced
from bench.stage import stage

PARTNERS = 50
MANY = 10_000
RETRIED_RATE = 500.0


def play_fan_out() -> dict[str, Any]:
    """Three strict destinations per partner; `delivered_per_second` counts events, each delivered three times."""
    with stage() as place:
        senders = place.senders(PARTNERS)
        names = {(sender, n): place.destination(f"to-{sender.name}-{n}") for sender in senders for n in range(3)}
        place.subscribe([(sender, name) for (sender, _), name in names.items()])
        place.warm_up(senders, 3)
        return closed_loop(place, senders, 3)


def play_funnel() -> dict[str, Any]:
    """One destination for all, with room for a lane of each."""
    with stage() as place:
        senders = place.senders(PARTNERS)
        funnel = place.destination("all", concurrency=100)
        place.subscribe([(sender, funnel) for sender in senders])
        place.warm_up(senders, each=40)
        return closed_loop(place, senders)


def play_payloads() -> dict[str, Any]:
    """What GitHub sends, 8 to 30 KB, signed and checked as GitHub's."""
    with stage() as place:
        senders = place.lanes(PARTNERS, verify="github")
        place.warm_up(senders, scheme="github")
        return closed_loop(place, senders, events=40_000, payloads="real", scheme="github")


def play_retries() -> dict[str, Any]:
    """Of all attempts 30 % fail; strict lanes wait for their retries, the first of them after 10 ms."""
    policy: dict[str, Any] = {
        "retry_base": timedelta(milliseconds=10),
        "retry_cap": timedelta(milliseconds=100),
        "breaker_failures": 1000,
        "max_attempts": 100,
    }
    with stage() as place:
        senders = place.lanes(PARTNERS, path="/fail/30", **policy)
        place.warm_up(senders)
        return paced(place, senders, RETRIED_RATE)


def play_many() -> dict[str, Any]:
    """10,000 partners take turns; their lanes lead to 50 destinations."""
    with stage() as place:
        senders = place.senders(MANY)
        names = [place.destination(f"to-{n}", concurrency=200) for n in range(50)]
        place.subscribe([(sender, names[n % len(names)]) for n, sender in enumerate(senders)])
        place.warm_up(senders, each=1)
        return closed_loop(place, senders)
