"""What is told of a run: each figure, its share of a ceiling of the same run, and the bar it has to reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]

BARE, BARE_256 = "ceilings.bare_server.", "ceilings.bare_server_256."
PER_SECOND, P99 = "requests_per_second", "p99_ms"
CLIENT, INSERT = "ceilings.bare_client.requests_per_second", "ceilings.group_insert.rows_per_second"


@dataclass(frozen=True, slots=True)
class Line:
    """A figure by its path in the document; a bar is of the share where there is a ceiling, else of the figure."""

    figure: str
    of: str = ""  # the ceiling's path
    at_least: float | None = None
    at_most: float | None = None


LINES = (
    Line("ceilings.bare_server.requests_per_second"),
    Line("ceilings.bare_server.p99_ms"),
    Line("ceilings.bare_client.requests_per_second"),
    Line("ceilings.group_insert.rows_per_second"),
    Line("ingest.events_per_second", BARE + PER_SECOND, at_least=0.40),
    Line("ingest.events_per_second", INSERT),
    Line("ingest.p50_ms", BARE + "p50_ms"),
    Line("ingest.p99_ms", BARE + P99, at_most=4.0),
    Line("ingest.cpu_us_per_event.system"),
    Line("ingest.lost", at_most=0),
    Line("overload.events_per_second", BARE_256 + PER_SECOND),
    Line("overload.p99_ms", BARE_256 + P99),
    Line("overload.failed", at_most=0),
    Line("overload.lost", at_most=0),
    Line("pipeline.delivered_per_second", BARE + PER_SECOND, at_least=0.18),
    Line("pipeline.delivered_per_second", CLIENT),
    Line("pipeline.delivered_per_second", INSERT),
    Line("pipeline.delivered_per_second", "baseline.delivered_per_second", at_least=20.0),
    Line("pipeline.cpu_us_per_event.system", at_most=235.0),
    Line("pipeline.drained_after_seconds", at_most=1.0),
    Line("pipeline.lag_p50_ms"),
    Line("pipeline.lag_p99_ms"),
    Line("paced.delivered_per_second"),
    Line("paced.lag_p50_ms", at_most=15.0),
    Line("paced.lag_p99_ms", at_most=100.0),
    Line("paced.cpu_us_per_event.system"),
    Line("lane_1ms.delivered_per_second", at_least=400.0),
    Line("lane_50ms.delivered_per_second", at_least=18.0),  # 90 % of one in 50 ms
    Line("baseline.delivered_per_second", BARE + PER_SECOND),
    Line("baseline.cpu_us_per_event"),
    Line("fan_out.delivered_per_second", BARE + PER_SECOND),
    Line("fan_out.cpu_us_per_event.system"),
    Line("funnel.delivered_per_second", BARE + PER_SECOND),
    Line("funnel.cpu_us_per_event.system"),
    Line("keys.delivered_per_second", at_least=1600.0),  # 80 % of 100 in 50 ms
    Line("payloads.delivered_per_second", BARE + PER_SECOND),
    Line("payloads.cpu_us_per_event.system"),
    Line("retries.lag_p50_ms"),
    Line("retries.lag_p99_ms"),
    Line("many.delivered_per_second", BARE + PER_SECOND),
    Line("many.cpu_us_per_event.system"),
    Line("hang.others_p99_ms", "hang.allowed_p99_ms", at_most=1.0),
    Line("burst.others_p99_ms", "burst.allowed_p99_ms", at_most=1.0),
    Line("backlog.drained_per_second", "backlog.live_per_second", at_least=0.8),
    Line("backlog.worker_rss_mb", at_most=300.0),
    Line("backlog.valkey_mb", at_most=64.0),
    Line("backlog.restart_ready_seconds"),
    Line("backlog.restart_first_seconds", at_most=5.0),
    Line("backlog.restart_full_rate_seconds"),
    Line("backlog.others_p99_ms"),
    Line("cold.first_start_seconds"),
    Line("cold.later_start_seconds"),
)
NONE = ("failed", "lost", "overtaken")  # of these no scenario may have any


@dataclass(frozen=True, slots=True)
class Told:
    """A line with its values in one document. `ok` is None where there is no bar."""

    line: Line
    value: float
    share: float | None
    ok: bool | None

    @property
    def bar(self) -> str:
        """What has to be reached, for people."""
        sign, limit = ("≥", self.line.at_least) if self.line.at_least is not None else ("≤", self.line.at_most)
        if limit is None:
            return ""
        return f"{sign} {_share(limit) if self.line.of else _number(limit)}"

    @property
    def row(self) -> tuple[str, ...]:
        """The line as people read it: figure, value, share, ceiling, bar, verdict."""
        share = "" if self.share is None else _share(self.share)
        verdict = {None: "", True: "reached", False: "MISSED"}[self.ok]
        return self.line.figure, _number(self.value), share, self.line.of, self.bar, verdict


def told(document: Document) -> list[Told]:
    """Every line whose scenario was played."""
    return [one for line in LINES if (one := _told(document, line)) is not None]


def shares(document: Document) -> dict[str, float]:
    """The shares of rates, by figure and ceiling: what a later run is compared with."""
    return {
        f"{one.line.figure} / {one.line.of}": round(one.share, 4)
        for one in told(document)
        if one.share is not None and one.line.figure.endswith("_per_second")
    }


def broken(document: Document) -> list[str]:
    """What must not be, whatever the speed: failed requests, lost events, a broken order."""
    return [
        f"{scenario}: {figures[name]} {name}"
        for scenario, figures in document.items()
        if isinstance(figures, dict)
        for name in NONE
        if figures.get(name)
    ]


def _told(document: Document, line: Line) -> Told | None:
    value, ceiling = _at(document, line.figure), _at(document, line.of) if line.of else None
    if value is None or (line.of and not ceiling):
        return None
    share = value / ceiling if ceiling else None
    judged = value if share is None else share
    ok = None
    if line.at_least is not None:
        ok = judged >= line.at_least
    elif line.at_most is not None:
        ok = judged <= line.at_most
    return Told(line, value, share, ok)


def _at(document: Document, path: str) -> float | None:
    found: Any = document
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            return None
        found = found[name]
    return None if found is None else float(found)


def _share(value: float) -> str:
    return f"{value:.0%}" if value < 2 else f"{value:.1f} ×"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"
