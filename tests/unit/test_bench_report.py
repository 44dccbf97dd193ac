"""What `make bench` makes of a document: the exit code, the files, the guard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main

CEILINGS = {"bare_server": {"requests_per_second": 30_000, "p99_ms": 5.0}}


def play(folder: Path, *argv: str, **figures: float) -> int:
    """One run with these figures of ingest."""
    ingest: dict[str, Any] = {"events_per_second": 15_000, "p99_ms": 10.0, "lost": 0, "failed": 0} | figures
    return main(["--only", "ingest", *argv], folder, {"ceilings": lambda: CEILINGS, "ingest": lambda: ingest})


def test_a_run_is_written_down_and_on_request_remembered(tmp_path: Path) -> None:
    assert play(tmp_path) == 0
    assert not (tmp_path / "history.jsonl").exists()
    assert play(tmp_path, "--record") == 0

    latest = json.loads((tmp_path / "latest.json").read_text())
    assert latest["ingest"]["events_per_second"] == 15_000
    assert latest["shares"] == {"ingest.events_per_second / ceilings.bare_server.requests_per_second": 0.5}
    assert [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()] == [latest]


def test_each_bar_says_what_was_asked_and_whether_it_was_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(tmp_path, events_per_second=9_000)

    rate, latency, lost = json.loads((tmp_path / "latest.json").read_text())["bars"]
    assert (rate["share"], rate["bar"], rate["verdict"]) == ("30%", "≥ 40%", "MISSED")
    assert (latency["share"], latency["bar"], latency["verdict"]) == ("2.0 ×", "≤ 4.0 ×", "reached")
    assert (lost["value"], lost["verdict"]) == ("0", "reached")
    assert "MISSED" in capsys.readouterr().out


def test_a_run_beside_other_work_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(tmp_path, cores_elsewhere=0.05)
    assert "others kept" not in capsys.readouterr().out

    play(tmp_path, cores_elsewhere=0.8)
    assert "ingest: others kept 0.8 cores busy" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["lost", "failed", "overtaken"])
def test_what_must_not_be_fails_the_run(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert play(tmp_path, **{what: 1}) == 1
    assert f"ingest: 1 {what}" in capsys.readouterr().err


def test_the_guard_fails_on_a_share_that_dropped_by_more_than_15_percent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(tmp_path, "--guard") == 1
    assert "nothing is recorded" in capsys.readouterr().err
    play(tmp_path, "--record")

    assert play(tmp_path, "--guard", events_per_second=13_000) == 0
    assert play(tmp_path, "--guard", events_per_second=12_000) == 1
    assert "40.0%, and was 50.0%" in capsys.readouterr().err


def test_a_scenario_that_breaks_fails_the_run_and_spoils_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> dict[str, Any]:
        raise RuntimeError("no servers here")

    assert (
        main(["--only", "ingest,cold"], tmp_path, {"ceilings": lambda: CEILINGS, "ingest": broken, "cold": dict}) == 1
    )
    assert "ingest: RuntimeError('no servers here')" in capsys.readouterr().err
    assert "cold" in json.loads((tmp_path / "latest.json").read_text())
