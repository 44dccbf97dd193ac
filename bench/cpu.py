"""CPU seconds of processes, user and system together, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

from tests.acceptance.product import Product, descendants

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int, *, with_ended_children: bool = False) -> float:
    """What a living process has used; 0 for one that is gone."""
    fields = _stat(pid)
    return sum(map(int, fields[11 : 15 if with_ended_children else 13])) / TICKS if fields else 0.0


def machine_seconds() -> float:
    """What everybody on this machine has used since it started, and what its host took away."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


def resident_bytes(pid: int) -> int:
    """The memory a living process holds."""
    fields = _stat(pid)
    return int(fields[21]) * PAGE if fields else 0


def by_role(product: Product) -> dict[str, float]:
    """What each role and server has used so far, `rest` being the supervisor, ops and jobs."""
    assert product.process
    used = {
        role: sum(cpu_seconds(pid) for pid in product.processes(role))
        for role in ("ingest", "worker", "valkey", "jobs", "ops")
    }
    used["postgres"] = sum(server_seconds(pid) for pid in product.processes("postgres"))
    used["rest"] = cpu_seconds(product.process.pid) + used.pop("jobs") + used.pop("ops")
    return used


def server_seconds(pid: int) -> float:
    """What a server with processes per connection has used, those that have ended included."""
    return cpu_seconds(pid, with_ended_children=True) + sum(map(cpu_seconds, descendants(pid)))


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
