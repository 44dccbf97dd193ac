"""Figures of a run: rates, percentiles, CPU by role."""

from __future__ import annotations

import time
from typing import Any

from bench import cpu
from bench.run import Run, percentile
from bench.stage import Load, Stage

SYSTEM = ("ingest", "worker", "postgres", "valkey")  # what an event costs; `rest` runs whether events come or not


def measured(place: Stage, load: Load, *, is_delivered: bool = True) -> tuple[Run, dict[str, Any]]:
    """The load's run until nothing is left to do, and its figures."""
    before, busy_before, began_at = place.cpu(), cpu.machine_seconds(), time.monotonic()
    run = load.start().finish()
    if is_delivered:
        place.await_arrivals(run)
    place.await_idle()
    seconds, busy = time.monotonic() - began_at, cpu.machine_seconds() - busy_before
    used = {role: value - before[role] for role, value in place.cpu().items()} | {"load": run.load_seconds}
    return run, counted(run) | used_by(used, busy, len(run.accepted), seconds)


def counted(run: Run) -> dict[str, Any]:
    """What must be 0, and how many there were."""
    return {
        "accepted": len(run.accepted),
        "failed": run.failed,
        "lost": run.lost,
        "repeated": run.repeated,
        "overtaken": run.overtaken,
    }


def used_by(used: dict[str, float], busy: float, events: int, seconds: float) -> dict[str, Any]:
    """CPU by role: seconds, and microseconds per event; `system` is ingest, workers, PostgreSQL and Valkey together.

    `cores_elsewhere` is what the machine did besides: where it is much, others were at work and the figures are theirs.
    """
    each = {role: round(value / max(1, events) * 1e6, 1) for role, value in used.items()}
    ours = sum(used.values())
    return {
        "cpu_seconds": {role: round(value, 2) for role, value in used.items()},
        "cpu_us_per_event": each | {"system": round(sum(each[role] for role in SYSTEM), 1)},
        "cores_busy": round(ours / seconds, 2),
        "cores_elsewhere": round((busy - ours) / seconds, 2),
    }


def milliseconds(name: str, ascending: list[float]) -> dict[str, float]:
    """p50 and p99."""
    return {
        f"{name}p50_ms": round(percentile(ascending, 0.5), 2),
        f"{name}p99_ms": round(percentile(ascending, 0.99), 2),
    }
