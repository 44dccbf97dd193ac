"""`make chaos`: runs of the chaos suite, one line of verdict each, appended to docs/chaos-runs.jsonl."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.chaos.faults import FAULTS
from tests.chaos.plan import Plan, draw
from tests.chaos.run import Outcome, play
from tests.servers import running_servers

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "docs" / "chaos-runs.jsonl"


def main() -> int:
    """The exit code: 0 if every run was good."""
    asked = _arguments()
    seeds = [asked.seed + n for n in range(asked.runs)]
    bad = [
        seed for seed in seeds if not _one(draw(seed, asked.seconds, asked.faults, asked.few_connections), asked.log)
    ]
    print(f"{len(seeds) - len(bad)} of {len(seeds)} runs were good" + (f"; bad seeds: {bad}" if bad else ""))
    return 1 if bad else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos ARGS=…", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1_000_000), help="of the first run; the next count on"
    )
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=25.0, help="of traffic, at most 30")
    parser.add_argument("--faults", type=_faults, default=sorted(FAULTS), help=", ".join(sorted(FAULTS)) + "; none")
    parser.add_argument("--few-connections", action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument("--log", type=Path, default=RUNS, help="where runs are recorded")
    asked = parser.parse_args()
    asked.seconds = min(asked.seconds, 30.0)
    return asked


def _faults(text: str) -> list[str]:
    names = [] if text == "none" else [name for name in text.split(",") if name]
    if unknown := set(names) - FAULTS.keys():
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
    return names


def _one(plan: Plan, log: Path) -> bool:
    """Whether the run was good; it is told and recorded."""
    print(plan, flush=True)
    began = time.monotonic()
    try:
        with running_servers() as servers:
            outcome = asyncio.run(play(plan, servers))
    except Exception as problem:  # noqa: BLE001 - a run that breaks is a bad run, and the next is due
        traceback.print_exc()
        outcome = Outcome(plan, {"the_run_ends": [repr(problem)]}, {})
    took = time.monotonic() - began
    print(f"{'good' if outcome.is_good else 'BAD'} in {took:.0f} s: {outcome.figures}", flush=True)
    for check, violations in outcome.violations.items():
        print(f"  {check}", *violations, sep="\n    ", flush=True)
    with log.open("a") as record:
        record.write(json.dumps(_line(outcome, took)) + "\n")
    return outcome.is_good


def _line(outcome: Outcome, took: float) -> dict[str, object]:
    plan = outcome.plan
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": version("hookyard"),
        "commit": _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "--porcelain", *SOURCES) else ""),
        "seed": plan.seed,
        "seconds": plan.seconds,
        "max_connections": plan.max_connections,
        "faults": [asdict(strike) for strike in plan.strikes],
        "ok": outcome.is_good,
        "took_seconds": round(took, 1),
        **outcome.figures,
        "violations": outcome.violations,
    }


SOURCES: Sequence[str] = ("domain", "storage", "ingest", "delivery", "workers", "ops", "migrations")


def _git(*argv: str) -> str:
    """What git says; nothing where there is no repository."""
    done = subprocess.run(["git", *argv], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
