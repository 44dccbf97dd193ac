"""Very many events wait for a destination that is down. It comes back; and everything is killed while they drain."""

from __future__ import annotations

import signal
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import redis

from bench import cpu
from bench.measure import counted, milliseconds
from bench.run import Run
from bench.scenarios.pipeline import closed_loop
from bench.stage import Stage, stage
from bench.traffic import Sender
from tests.acceptance.product import free_port

EVENTS = 1_000_000
PORTION = 100_000  # requests made at a time: they are signed for now, and held in memory
OTHERS_RATE = 200.0
OTHERS_SECONDS = 15.0  # at most: it has to be over before half is drained, at less than 10,000 a second
DOWN: dict[str, Any] = {
    "concurrency": 100,
    "timeout": timedelta(seconds=1),  # which a lane left in flight waits for after the restart
    "retry_base": timedelta(seconds=1),
    "retry_cap": timedelta(seconds=1),
    "max_attempts": 10_000,
    "breaker_reset": timedelta(seconds=1),
}
SAMPLE_SECONDS = 0.25
STALLED_SECONDS = 60.0
RESUMED_SECONDS = 15.0  # after the first arrival; at its full rate by then


def play() -> dict[str, Any]:
    """50 partners wait for one destination, 10 others have theirs."""
    with stage(EVENTS + 600_000) as place:
        others = place.lanes(10, "other")
        senders = place.senders(50)
        port = free_port()
        place.destination("down", url=f"http://127.0.0.1:{port}/ok", **DOWN)
        place.subscribe([(sender, "down") for sender in senders])
        sink = place.another_sink(port)
        place.warm_up([*senders, *others])
        live = closed_loop(place, senders)
        sink.end()
        filled = list(_fill(place, senders))
        accepted = sum(len(run.accepted) for run in filled)
        with _peaks(place) as peaks:
            opened_at, arrived = time.monotonic(), place.ledger.arrivals
            place.another_sink(port)
            beside = _others(place, others)
            _await_arrivals(place, arrived + len(beside.accepted) + accepted // 2)
            drained_per_second = _rate(filled)
        again = _killed(place, filled)
        place.await_arrivals(*filled)
        return {
            "events": accepted,
            "filled_per_second": round(accepted / sum(run.seconds for run in filled)),
            "live_per_second": live["delivered_per_second"],
            "drained_per_second": round(drained_per_second),
            "first_after_seconds": round(_first(filled) - opened_at, 2),
            **peaks,
            **milliseconds("others_", beside.lag_ms()),
            **again,
            "failed": sum(run.failed for run in (*filled, beside)),
            "lost": sum(run.lost for run in (*filled, beside)),
            "repeated": sum(run.repeated for run in filled),
            "beside": counted(beside),
        }


def _fill(place: Stage, senders: list[Sender]) -> Iterator[Run]:
    for n in range(0, EVENTS, PORTION):
        yield place.load(place.traffic(senders, min(PORTION, EVENTS - n), 64, 200)).start().finish()


def _others(place: Stage, senders: list[Sender]) -> Run:
    """The lags of everybody else while it drains."""
    seconds = min(OTHERS_SECONDS, EVENTS / 20_000)
    events = int(OTHERS_RATE * seconds)
    run = place.load(place.traffic(senders, events, 16, 2 * seconds, rate=OTHERS_RATE)).start().finish()
    place.await_arrivals(run)
    return run


def _arrivals(runs: list[Run], since: float = 0.0) -> list[float]:
    """When what has arrived since then did, ascending."""
    return sorted(at for run in runs for row in run.rows if (at := run.ledger.arrived_at[row]) > since)


def _first(runs: list[Run], since: float = 0.0) -> float:
    return min(_arrivals(runs, since), default=time.monotonic())


def _rate(runs: list[Run]) -> float:
    arrivals = _arrivals(runs)
    return (len(arrivals) - 1) / (arrivals[-1] - arrivals[0]) if len(arrivals) > 1 else 0.0


def _await_arrivals(place: Stage, count: int) -> None:
    """The ledger counts about so many (two sinks may count one as another does), or none more for too long."""
    seen, since = -1, time.monotonic()
    while (there := place.ledger.arrivals) < count and time.monotonic() - since < STALLED_SECONDS:
        if there != seen:
            seen, since = there, time.monotonic()
        time.sleep(SAMPLE_SECONDS)


def _killed(place: Stage, runs: list[Run]) -> dict[str, Any]:
    """SIGKILL to the supervisor, which takes everything with it, and a new start on the same data."""
    before = _rate(runs)
    place.product.stop(signal.SIGKILL)
    began_at = time.monotonic()
    place.product.start()
    ready_after = time.monotonic() - began_at
    _await_arrivals(place, place.ledger.arrivals + 1)
    time.sleep(RESUMED_SECONDS)
    arrivals = _arrivals(runs, since=began_at)
    full = next((at for at in arrivals if _within(arrivals, at, at + 1) >= 0.8 * before), None)
    return {
        "restart_ready_seconds": round(ready_after, 2),
        "restart_first_seconds": round((arrivals[0] if arrivals else time.monotonic()) - began_at, 2),
        "restart_full_rate_seconds": round(full - began_at, 2) if full else None,
    }


def _within(ascending: list[float], start: float, end: float) -> int:
    return bisect_left(ascending, end) - bisect_left(ascending, start)


@contextmanager
def _peaks(place: Stage) -> Iterator[dict[str, float]]:
    """The most memory that the workers and Valkey held meanwhile, in MB; filled in at the end."""
    peaks = {"worker_rss_mb": 0.0, "valkey_mb": 0.0}
    done = threading.Event()

    def watch() -> None:
        with redis.Redis.from_url(place.redis_url) as client:
            while not done.wait(SAMPLE_SECONDS):
                resident = max(map(cpu.resident_bytes, place.product.processes("worker")), default=0)
                peaks["worker_rss_mb"] = max(peaks["worker_rss_mb"], round(resident / 1e6, 1))
                used = int(client.info("memory")["used_memory"])
                peaks["valkey_mb"] = max(peaks["valkey_mb"], round(used / 1e6, 1))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peaks
    finally:
        done.set()
        thread.join()
