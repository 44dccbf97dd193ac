"""The scenarios by name, in the order in which they play, and which of them are the standard set.

A scenario is a function without arguments that returns its figures: what they are of, with the unit in their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.scenarios import backlog, baseline, ceilings, cold, ingest, lanes, neighbours, pipeline, shapes

Scenario = Callable[[], dict[str, Any]]

STANDARD: Mapping[str, Scenario] = {
    "ceilings": ceilings.play,
    "ingest": ingest.play,
    "overload": ingest.play_overload,
    "pipeline": pipeline.play,
    "paced": pipeline.play_paced,
    "lane_1ms": lanes.play_1ms,
    "lane_50ms": lanes.play_50ms,
    "baseline": baseline.play,
}
ALL: Mapping[str, Scenario] = {
    **STANDARD,
    "fan_out": shapes.play_fan_out,
    "funnel": shapes.play_funnel,
    "keys": lanes.play_keys,
    "payloads": shapes.play_payloads,
    "retries": shapes.play_retries,
    "many": shapes.play_many,
    "hang": neighbours.play_hang,
    "burst": neighbours.play_burst,
    "backlog": backlog.play,
    "cold": cold.play,
}
