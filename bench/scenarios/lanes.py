"""One partner's events, one after the other, to a destination that takes its time."""

from __future__ import annotations

from typing import Any

from bench.measure import measured, milliseconds
from bench.stage import Stage, stage


def play_1ms() -> dict[str, Any]:
    """A strict lane whose destination answers after 1 ms."""
    return _strict("/wait/1", 4000)


def play_50ms() -> dict[str, Any]:
    """A strict lane whose destination answers after 50 ms."""
    return _strict("/wait/50", 160)


def play_keys() -> dict[str, Any]:
    """A lane ordered by key: 1,000 keys, 100 at a time, a destination that answers after 50 ms."""
    with stage(40_000) as place:
        senders = place.senders(1, order_key="header:bench-key")
        destination = place.destination("keyed", "/wait/50", concurrency=100)
        place.subscribe([(sender, destination) for sender in senders], "key")
        place.warm_up(senders, each=20)
        return delivered(place, place.traffic(senders, 20_000, 64, 30, keys=1000))


def _strict(path: str, events: int) -> dict[str, Any]:
    with stage(10_000) as place:
        senders = place.lanes(1, path=path)
        place.warm_up(senders, each=20)
        return delivered(place, place.traffic(senders, events, 8, 30))


def delivered(place: Stage, traffic: Any) -> dict[str, Any]:
    """All is sent at once; the rate is that of the arrivals, from the first to the last."""
    run, figures = measured(place, place.load(traffic))
    arrivals = sorted(place.ledger.arrived_at[row] for row in run.accepted)
    return {
        "delivered_per_second": round((len(arrivals) - 1) / (arrivals[-1] - arrivals[0]), 1),
        **milliseconds("lag_", run.lag_ms()),
        **figures,
    }
