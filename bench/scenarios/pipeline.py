"""From the partner's POST to the destination's 200."""

from __future__ import annotations

from typing import Any

from bench.measure import measured, milliseconds
from bench.stage import Stage, stage
from bench.traffic import Sender

SECONDS = 10.0
EVENTS = 250_000  # more than any machine takes in that time
PACE = 5000.0  # events per second


def play() -> dict[str, Any]:
    """50 partners with a strict destination each, as fast as 64 connections get their 202."""
    with stage() as place:
        senders = place.lanes(50)
        place.warm_up(senders, each=40)
        return closed_loop(place, senders)


def play_paced() -> dict[str, Any]:
    """The same at a given pace; lags count from when an event was due to be sent."""
    with stage() as place:
        senders = place.lanes(50)
        place.warm_up(senders, each=40)
        return paced(place, senders, PACE)


def closed_loop(
    place: Stage, senders: list[Sender], copies: int = 1, events: int | None = None, **more: Any
) -> dict[str, Any]:
    """Figures of a closed loop, delivered to the last event."""
    return _figures(place, senders, events or EVENTS, 64, copies, SECONDS, **more)


def paced(place: Stage, senders: list[Sender], rate: float, copies: int = 1, **more: Any) -> dict[str, Any]:
    """Figures of an open loop."""
    return _figures(place, senders, int(rate * SECONDS), 256, copies, 2 * SECONDS, rate=rate, **more)


def _figures(
    place: Stage, senders: list[Sender], events: int, connections: int, copies: int, seconds: float, **more: Any
) -> dict[str, Any]:
    load = place.load(place.traffic(senders, events, connections, seconds, **more), copies)
    run, figures = measured(place, load)
    return {
        "delivered_per_second": round(run.delivered_per_second()),
        "accepted_per_second": round(run.accepted_per_second()),
        **milliseconds("lag_", run.lag_ms()),
        **milliseconds("answer_", run.answer_ms()),
        "drained_after_seconds": round(max(0.0, run.arrived_at - run.ended_at), 2),
        "cpu_seconds_per_1000_delivered": round(figures["cpu_us_per_event"]["system"] / 1000, 4),
        **figures,
    }
