"""`make bench`: plays scenarios, shows what came of them, writes it down, and compares it with what was recorded."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import report
from bench.bars import Document, broken, shares
from bench.scenarios import ALL, STANDARD, Scenario, backlog


def main(
    argv: Sequence[str] | None = None, folder: Path = report.RESULTS, scenarios: Mapping[str, Scenario] = ALL
) -> int:
    """The exit code: 1 if an event was lost or overtaken, a request failed, or a guarded share has dropped."""
    asked = _arguments(argv)
    backlog.EVENTS = asked.backlog or backlog.EVENTS
    document: Document = {"run": report.about()}
    problems: list[str] = []
    for name in _chosen(asked):
        print(f"{name} …", end=" ", flush=True)
        began_at = time.monotonic()
        try:
            document[name] = scenarios[name]()
        except Exception as problem:  # noqa: BLE001 - the other scenarios are still worth their time
            traceback.print_exc()
            problems.append(f"{name}: {problem!r}")
        print(f"{time.monotonic() - began_at:.0f} s", flush=True)
    document["shares"] = shares(document)
    report.show(document)
    problems += broken(document) + (report.dropped(document, folder) if asked.guard else [])
    report.write(document, folder, record=asked.record)
    for line in problems:
        print(f"bench: {line}", file=sys.stderr)
    return 1 if problems else 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every scenario instead of the standard set")
    parser.add_argument("--only", metavar="NAMES", type=_names, help="comma-separated: " + ", ".join(ALL))
    parser.add_argument("--backlog", type=int, metavar="N", help=f"events of that scenario ({backlog.EVENTS:,})")
    parser.add_argument("--guard", action="store_true", help="fail where a share is 15 %% below the last recorded one")
    parser.add_argument("--record", action="store_true", help="append the run to bench/results/history.jsonl")
    return parser.parse_args(argv)


def _names(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    if unknown := set(names) - ALL.keys():
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
    return names


def _chosen(asked: argparse.Namespace) -> list[str]:
    """The names to play, the ceilings always first: without them no figure means anything."""
    names = asked.only or (ALL if asked.all else STANDARD)
    return ["ceilings", *(name for name in names if name != "ceilings")]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # everything that was started is ended on the way out
    sys.exit(main())
