"""The roles `hookyard up` keeps: their slots, their commands, and what each is told by its environment.

A slot (`worker-1`) outlives the processes that fill it: metric files and health sockets are named after it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ops.keeping import StopSignals
from ops.settings import Settings
from ops.system import System

# Seconds a role may take to drain. One group after the other, each with a second more before it is killed, and the
# servers' own 2 + 7 seconds, make 44: an orchestrator that waits 45 sees an orderly end.
DRAIN_SECONDS = {"ingest": 6, "worker": 22, "jobs": 3, "ops": 3, "migrate": 3}
_KILL_AFTER_SECONDS = 1

Command = Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Slot:
    role: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.role}-{self.number}"


def hookyard(role: str) -> Sequence[str]:
    """The role as a command of the environment this process runs in."""
    launcher = Path(sys.prefix, "bin", "hookyard")
    return [sys.executable, str(launcher), role] if launcher.exists() else [sys.executable, "-m", "ops.cli", role]


def slots(settings: Settings) -> tuple[Slot, ...]:
    counts = {"ingest": settings.ingest_processes, "worker": settings.worker_processes, "jobs": 1, "ops": 1}
    return tuple(Slot(role, number) for role, count in counts.items() for number in range(count))


def stop_signals(role: str) -> StopSignals:
    return ((signal.SIGTERM, DRAIN_SECONDS[role] + _KILL_AFTER_SECONDS),)


def environment(settings: Settings, system: System, slot: Slot, slots: Sequence[Slot]) -> dict[str, str]:
    """The whole environment of a role: ours, with everything that was found out or generated put in."""
    told = {
        "DATABASE_URL": system.database_url,
        "REDIS_URL": system.redis_url,
        "MASTER_KEY": system.master_key,
        "ALLOW_NETWORKS": system.allow_networks,
        "DATA_DIR": str(settings.data_dir),
        "METRICS_DIR": str(settings.data_dir / "metrics"),
        "DRAIN_SECONDS": str(DRAIN_SECONDS[slot.role]),
        "SLOT": slot.name,
        "SLOTS": ",".join(other.name for other in slots),
        "ADMIN_TOKEN": system.admin_token if slot.role == "ops" else "",  # nobody else judges who may come in
    }
    return dict(os.environ) | {f"HOOKYARD_{name}": value for name, value in told.items()}
