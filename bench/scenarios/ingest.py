"""Ingest alone: 50 partners, signatures checked, deduplication on, 1 KiB bodies, nobody subscribed."""

from __future__ import annotations

from typing import Any

from bench.measure import measured, milliseconds
from bench.run import Run
from bench.stage import Stage, stage

SECONDS = 6.0
EVENTS = 250_000  # more than any machine takes in that time


def play() -> dict[str, Any]:
    """One process, 64 connections."""
    return _play(64, ingest_processes=1)


def play_overload() -> dict[str, Any]:
    """Two processes, 256 connections: more than two cores can take."""
    return _play(256, ingest_processes=2)


def _play(connections: int, **settings: int) -> dict[str, Any]:
    with stage(400_000, **settings) as place:
        senders = place.senders(50)
        place.warm_up(senders, copies=0)
        stored = place.ask("SELECT count(*) FROM events")
        load = place.load(place.traffic(senders, EVENTS, connections, SECONDS), copies=0)
        run, figures = measured(place, load, is_delivered=False)
        return {
            "events_per_second": round(run.accepted_per_second()),
            **milliseconds("", run.answer_ms()),
            **figures,
            "lost": _not_stored(place, stored, run),
        }


def _not_stored(place: Stage, before: int, run: Run) -> int:
    return len(run.accepted) - (place.ask("SELECT count(*) FROM events") - before)
