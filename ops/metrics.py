"""The text of `/metrics`: what the roles' processes counted, and what only the database knows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric

from ops.slotfiles import collect
from storage import backlog, figures
from storage.backlog import Backlog
from storage.figures import Gate, Parkings

if TYPE_CHECKING:
    import sqlalchemy as sa

BREAKER = {"closed": 0, "half_open": 1, "open": 2}

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """How the whole system stands, by the database."""

    backlogs: list[Backlog]
    gates: list[Gate]
    parkings: list[Parkings]


def read_standing(connection: sa.Connection) -> Standing:
    """How the system stands now."""
    return Standing(backlog.backlog(connection), figures.gates(connection), figures.parkings(connection))


def of_processes(directory: Path | None) -> str:
    """What the roles under one supervisor counted; nothing without a directory."""
    if directory is None:
        return ""
    registry = CollectorRegistry()
    registry.register(_Files(directory))
    return generate_latest(registry).decode()


def of_database(standing: Standing | None, total_before: Iterable[Parkings] = ()) -> str:
    """What the database tells. Without an answer its gauges are left out, not guessed; the last totals stay true."""
    parkings = standing.parkings if standing is not None else total_before
    families = [
        _family("hookyard_database_up", "gauge", "Whether the database answers.", {(): int(standing is not None)}),
        _family(
            "hookyard_parked_total",
            "counter",
            "Deliveries that were parked; a replay does not take them back.",
            _summed(((("destination", p.destination), ("reason", p.reason)), p.total) for p in parkings),
        ),
    ]
    return "".join([*families, *(_gauges(standing) if standing is not None else ())])


def _gauges(standing: Standing) -> Iterable[str]:
    partners = [(partner, (("partner", partner.partner),)) for partner in standing.backlogs]
    lanes = [
        (lane, (("partner", partner.partner), ("destination", lane.destination)))
        for partner in standing.backlogs
        for lane in partner.lanes
    ]
    gates = [(gate, (("destination", gate.destination),)) for gate in standing.gates]
    yield _family(
        "hookyard_backlog",
        "gauge",
        "Events that wait, not dispatched or in the partner's longest lane.",
        _summed((labels, partner.waiting) for partner, labels in partners),
    )
    yield _family(
        "hookyard_oldest_undelivered_seconds",
        "gauge",
        "Age of the partner's oldest event that is neither delivered nor parked.",
        _largest((labels, round(partner.oldest_seconds or 0.0, 3)) for partner, labels in partners),
    )
    yield _family(
        "hookyard_lane_backlog",
        "gauge",
        "Deliveries that wait.",
        _summed((labels, lane.waiting) for lane, labels in lanes),
    )
    yield _family(
        "hookyard_parked",
        "gauge",
        "Deliveries that are parked.",
        _summed((labels, lane.parked) for lane, labels in lanes),
    )
    yield _family(
        "hookyard_destination_in_flight",
        "gauge",
        "Attempts in flight, in the whole system.",
        {labels: gate.in_flight for gate, labels in gates},
    )
    yield _family(
        "hookyard_breaker_state",
        "gauge",
        "0 closed, 1 half-open, 2 open.",
        {labels: BREAKER[gate.breaker] for gate, labels in gates},
    )


class _Files:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return collect(self._directory)


def _summed(samples: Iterable[tuple[Labels, float]]) -> dict[Labels, float]:
    """A name that was given anew after a removal counts once, with what is left of the old one."""
    found: dict[Labels, float] = {}
    for labels, value in samples:
        found[labels] = found.get(labels, 0) + value
    return found


def _largest(samples: Iterable[tuple[Labels, float]]) -> dict[Labels, float]:
    found: dict[Labels, float] = {}
    for labels, value in samples:
        found[labels] = max(found.get(labels, 0.0), value)
    return found


def _family(name: str, kind: str, text: str, samples: dict[Labels, float]) -> str:
    """Exposition format 0.0.4. The labels are names of ours, which need no escaping."""
    lines = [f"# HELP {name} {text}\n# TYPE {name} {kind}\n"]
    for labels, value in samples.items():
        named = ",".join(f'{label}="{word}"' for label, word in labels)
        lines.append(f"{name}{{{named}}} {value}\n" if named else f"{name} {value}\n")
    return "".join(lines)
