"""The bench itself, on its smallest scenario: what it tells, and that it notices what must not be."""

from __future__ import annotations

import pytest

import bench.stage
from bench.bars import broken, shares, told
from bench.scenarios import pipeline

CEILINGS = {
    "bare_server": {"requests_per_second": 30_000, "p50_ms": 2.0, "p99_ms": 5.0},
    "bare_client": {"requests_per_second": 20_000},
    "group_insert": {"rows_per_second": 60_000},
}


def test_a_run_tells_rates_lags_and_cpu_beside_its_ceilings_and_a_lost_event_fails_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "EVENTS", 400)
    with bench.stage.stage(4000) as place:
        senders, forgotten = place.lanes(3), place.lanes(1, "forgotten", path="/lose/10")
        place.warm_up([*senders, *forgotten], copies=0)

        figures = pipeline.closed_loop(place, senders)
        monkeypatch.setattr(bench.stage, "PATIENCE_SECONDS", 1)
        losing = pipeline.closed_loop(place, forgotten)

    assert figures["accepted"] == 400
    assert figures["delivered_per_second"] > 0
    assert 0 < figures["lag_p50_ms"] <= figures["lag_p99_ms"]
    assert figures["cpu_seconds_per_1000_delivered"] > 0
    assert {"ingest", "worker", "postgres", "valkey", "load", "sink"} <= figures["cpu_seconds"].keys()
    good = {"ceilings": CEILINGS, "pipeline": figures}
    assert broken(good) == []
    assert "pipeline.delivered_per_second / ceilings.bare_server.requests_per_second" in shares(good)
    assert {one.line.figure for one in told(good) if one.ok is not None} >= {"pipeline.cpu_us_per_event.system"}
    assert broken({"pipeline": losing}) == [f"pipeline: {losing['lost']} lost"]
