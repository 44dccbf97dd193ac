"""What is done with the document of a run: it is shown, written down, and compared with the run recorded last."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.bars import Document, told

RESULTS = Path(__file__).parent / "results"
SOURCES = ("domain", "storage", "ingest", "delivery", "workers", "ops", "migrations")
DROP = 0.15  # of a share
COLUMNS = ("figure", "value", "share", "of", "bar", "verdict")
QUIET_CORES = 0.2  # the kernel's own share, and what is not worth a word
WIDTH = 130  # where nobody looks at a terminal


def about() -> dict[str, Any]:
    """What a figure has to be read with."""
    changed = "+" if _git("status", "--porcelain", *SOURCES) else ""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": version("hookyard"),
        "commit": _git("rev-parse", "--short", "HEAD") + changed,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load": "own, asyncio on uvloop",
        "sink": "own, asyncio on uvloop",
    }


def show(document: Document) -> None:
    """The table on stdout."""
    run = document["run"]
    title = f"Hookyard {run['version']} ({run['commit']}), {run['cores']} cores, load and sink included"
    table = Table(*COLUMNS, title=title, caption=f"load: {run['load']}; sink: {run['sink']}")
    for one in told(document):
        table.add_row(*one.row)
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)
    for name, cores in disturbed(document).items():
        print(f"{name}: others kept {cores} cores busy meanwhile; believe CPU per event, not rates and lags")


def disturbed(document: Document) -> dict[str, float]:
    """Scenarios during which the machine was not ours alone, and how many cores others took."""
    found = {
        name: figures.get("cores_elsewhere", 0.0) for name, figures in document.items() if isinstance(figures, dict)
    }
    return {name: cores for name, cores in found.items() if cores > QUIET_CORES}


def write(document: Document, folder: Path, *, record: bool) -> None:
    """The document is `latest.json`, and on request the last line of the history."""
    folder.mkdir(exist_ok=True)
    document["bars"] = [dict(zip(COLUMNS, one.row, strict=True)) for one in told(document) if one.bar]
    (folder / "latest.json").write_text(json.dumps(document, indent=1) + "\n")
    if record:
        with _history(folder).open("a") as file:
            file.write(json.dumps(document) + "\n")


def dropped(document: Document, folder: Path) -> list[str]:
    """Shares that are much lower than in the run recorded last."""
    if not _history(folder).exists():
        return ["nothing is recorded to compare with"]
    before = json.loads(_history(folder).read_text().splitlines()[-1])["shares"]
    return [
        f"{name} is {share:.1%}, and was {before[name]:.1%}"
        for name, share in document["shares"].items()
        if name in before and share < before[name] * (1 - DROP)
    ]


def _history(folder: Path) -> Path:
    return folder / "history.jsonl"


def _git(*argv: str) -> str:
    """What git says; nothing where there is no repository."""
    try:
        done = subprocess.run(["git", *argv], cwd=RESULTS.parent, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
