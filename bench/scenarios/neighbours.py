"""One partner or destination misbehaves: what everybody else notices, compared with the quiet before it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from bench.measure import counted, milliseconds
from bench.run import Run, percentile
from bench.stage import Stage, stage
from bench.traffic import Sender

RATE = 500.0  # events per second of all others together
QUIET_SECONDS = 10.0
LOUD_RATE = 50_000 / 60
HUNG_RATE = 50.0
ALLOWED_MS = 40.0  # of lag, where twice the quiet value is less


def play_hang() -> dict[str, Any]:
    """A destination never answers: each attempt takes its whole timeout."""
    return _beside(HUNG_RATE, 20.0, "/hang", timeout=timedelta(seconds=5), breaker_failures=1000)


def play_burst() -> dict[str, Any]:
    """A partner sends 50,000 events within a minute."""
    return _beside(LOUD_RATE, 60.0, "/ok")


def _beside(bad_rate: float, seconds: float, path: str, **options: Any) -> dict[str, Any]:
    with stage() as place:
        others = place.lanes(50)
        place.warm_up(others)
        quiet = _paced(place, others, QUIET_SECONDS)
        bad = place.lanes(1, "bad", path, **options)
        place.make_known(bad)
        traffic = place.traffic(bad, int(bad_rate * seconds), 16, 2 * seconds, rate=bad_rate)
        noise = place.load(traffic, copies=0).start()
        run = _paced(place, others, seconds)
        offered = noise.finish()
        before = percentile(quiet.lag_ms(), 0.99)
        return {
            "quiet_p99_ms": round(before, 2),
            "allowed_p99_ms": round(max(2 * before, ALLOWED_MS), 2),
            **milliseconds("others_", run.lag_ms()),
            "bad_accepted_per_second": round(offered.accepted_per_second()),
            **counted(run),
        }


def _paced(place: Stage, senders: list[Sender], seconds: float) -> Run:
    run = place.load(place.traffic(senders, int(RATE * seconds), 64, 2 * seconds, rate=RATE)).start().finish()
    place.await_arrivals(run)
    return run
