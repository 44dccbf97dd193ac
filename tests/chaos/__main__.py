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

from tests.chaos.faults import FAULTS, SPANS
from tests.chaos.plan import Plan, draw
from tests.chaos.run import Outcome, play
from tests.chaos.stage import standing
from tests.servers import Servers, running_servers

ROOT = Path(__file__).parents[2]
PER_STAGE = 10  # runs on one set of servers, and one installation
RUNS = ROOT / "docs" / "chaos-runs.jsonl"


def main() -> int:
    """The exit code: 0 if every run was good."""
    asked = _arguments()
    plans = [draw(asked.seed + n, asked.seconds, asked.faults, SPANS) for n in range(asked.seeds)]
    bad: list[int] = []
    left = list(plans)
    until = time.monotonic() + asked.within
    while left and time.monotonic() < until:
        with running_servers() as servers:
            bad += asyncio.run(_on_one_stage(left, servers, asked.log, until))
    done = len(plans) - len(left)
    print(f"{done - len(bad)} of {done} runs were good" + (f"; bad seeds: {bad}" if bad else ""))
    return 1 if bad else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos ARGS=…", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1_000_000), help="of the first run; the next count on"
    )
    parser.add_argument("--seeds", type=int, default=1, help="how many runs")
    parser.add_argument("--within", type=float, default=float("inf"), metavar="SECONDS", help="no run begins later")
    parser.add_argument("--seconds", type=float, default=8.0, help="of traffic, at most 30; some faults want more")
    parser.add_argument("--faults", type=_faults, default=sorted(FAULTS), help=", ".join(sorted(FAULTS)) + "; none")
    parser.add_argument("--log", type=Path, default=RUNS, help="where runs are recorded")
    asked = parser.parse_args()
    asked.seconds = min(asked.seconds, 30.0)
    return asked


def _faults(text: str) -> list[str]:
    names = [] if text == "none" else [name for name in text.split(",") if name]
    if unknown := set(names) - FAULTS.keys():
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
    return names


async def _on_one_stage(plans: list[Plan], servers: Servers, log: Path, until: float) -> list[int]:
    """Plays the first of these plans and takes them out, until one is bad (its seed is returned) or enough are done."""
    began = time.monotonic()
    async with standing(servers) as stage:
        for _ in range(min(len(plans), PER_STAGE)):
            if time.monotonic() > until:
                break
            plan = plans.pop(0)
            print(plan, flush=True)
            try:
                outcome = await play(plan, stage)
            except Exception as problem:  # noqa: BLE001 - a run that breaks is a bad run, and the next is due
                traceback.print_exc()
                outcome = Outcome(plan, {"the_run_ends": [repr(problem)]}, {})
            took, began = time.monotonic() - began, time.monotonic()
            _tell(outcome, took)
            with log.open("a") as record:
                record.write(json.dumps(_line(outcome, took)) + "\n")
            if not outcome.is_good:
                return [plan.seed]
    return []


def _tell(outcome: Outcome, took: float) -> None:
    print(f"{'good' if outcome.is_good else 'BAD'} in {took:.0f} s: {outcome.figures}", flush=True)
    for check, violations in outcome.violations.items():
        print(f"  {check}", *violations, sep="\n    ", flush=True)


def _line(outcome: Outcome, took: float) -> dict[str, object]:
    plan = outcome.plan
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": version("hookyard"),
        "commit": _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "--porcelain", *SOURCES) else ""),
        "seed": plan.seed,
        "seconds": plan.seconds,
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
