"""Metric files of slots. What counts is a process of its own: prometheus-client keeps files for a process's life."""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ops.slotfiles import collect, forget_gauges

ROOT = Path(__file__).resolve().parents[3]
COUNTING = """
import os, sys
from pathlib import Path
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from ops.slotfiles import use_slot
use_slot(Path(sys.argv[1]), sys.argv[2])
registry = CollectorRegistry()
counter = Counter("hookyard_seen", "Seen.", ["partner"], registry=registry)
gauge = Gauge("hookyard_now", "Now.", registry=registry, multiprocess_mode="livesum")
histogram = Histogram("hookyard_took_seconds", "Took.", registry=registry, buckets=(1, 2))
counter.labels("shop").inc(3)
gauge.set(5)
histogram.observe(1.5)
"""


def count(directory: Path, slot: str, end: str = "os.kill(os.getpid(), 9)") -> int:
    """A process that counts in a slot, and ends so."""
    script = textwrap.dedent(COUNTING) + end
    done = subprocess.run([sys.executable, "-c", script, str(directory), slot], cwd=ROOT, check=False, timeout=30)
    return done.returncode


def samples(directory: Path) -> dict[str, float]:
    return {
        sample.name + "".join(f"|{value}" for value in sample.labels.values()): sample.value
        for metric in collect(directory)
        for sample in metric.samples
    }


def test_a_killed_processs_counts_stay_and_its_successor_goes_on(tmp_path: Path) -> None:
    assert count(tmp_path, "worker-0") == -signal.SIGKILL
    assert count(tmp_path, "worker-0") == -signal.SIGKILL

    found = samples(tmp_path)

    assert found["hookyard_seen_total|shop"] == 6
    assert found["hookyard_took_seconds_count"] == 2
    assert found["hookyard_took_seconds_bucket|1.0"] == 0
    assert found["hookyard_took_seconds_bucket|2.0"] == 2


def test_slots_add_up(tmp_path: Path) -> None:
    count(tmp_path, "worker-0")
    count(tmp_path, "worker-1")

    assert samples(tmp_path)["hookyard_seen_total|shop"] == 6
    assert samples(tmp_path)["hookyard_now"] == 10


def test_a_gauge_ends_with_its_process(tmp_path: Path) -> None:
    count(tmp_path, "worker-0")
    count(tmp_path, "worker-1")

    forget_gauges(tmp_path, "worker-0")
    assert samples(tmp_path)["hookyard_now"] == 5

    forget_gauges(tmp_path)
    assert "hookyard_now" not in samples(tmp_path)
    assert samples(tmp_path)["hookyard_seen_total|shop"] == 6


def test_a_slot_that_starts_again_does_not_show_the_gauges_of_before(tmp_path: Path) -> None:
    count(tmp_path, "worker-0")
    starting = f"from pathlib import Path; import ops.slotfiles as s; s.use_slot(Path({str(tmp_path)!r}), 'worker-0')"
    subprocess.run([sys.executable, "-c", starting], cwd=ROOT, check=True, timeout=30)

    assert "hookyard_now" not in samples(tmp_path)
    assert samples(tmp_path)["hookyard_seen_total|shop"] == 3


def test_the_directory_does_not_grow_with_restarts(tmp_path: Path) -> None:
    count(tmp_path, "worker-0")
    before = {path.name for path in tmp_path.iterdir()}
    for _ in range(3):
        count(tmp_path, "worker-0")

    assert {path.name for path in tmp_path.iterdir()} == before


DAMAGE = {
    "noise": b"\xff" * 4096,
    "a short header": b"\x01",
    "a used length beyond the file": struct.pack("i", 1 << 30) + bytes(100),
    "a negative used length": struct.pack("i", -8) + bytes(100),
    "a key that turns back": struct.pack("iiii", 64, 0, -24, 0) + bytes(100),
    "a key that is no JSON": struct.pack("iiii", 40, 0, 4, 0) + bytes(100),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_hurts_neither_the_scrape_nor_the_start(tmp_path: Path, damage: bytes) -> None:
    count(tmp_path, "worker-0")
    count(tmp_path, "worker-1")
    (tmp_path / "counter_worker-0.db").write_bytes(damage)

    assert samples(tmp_path)["hookyard_seen_total|shop"] == 3

    assert count(tmp_path, "worker-0", "os._exit(0)") == 0
    assert samples(tmp_path)["hookyard_seen_total|shop"] == 6
