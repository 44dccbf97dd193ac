"""The scenarios by name, in the order in which they play, and which of them are the standard set.

A scenario is a function without arguments that returns its figures: what they are of, with the unit in their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.scenarios import baseline, ceilings, ingest, lanes, pipeline

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
ALL: Mapping[str, Scenario] = {**STANDARD}
