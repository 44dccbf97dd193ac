"""The overview at `/`: one page, rendered here, no script."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from domain.version import VERSION
from ops.metrics import Standing

STYLE = (
    "body{font:15px system-ui;margin:2rem}table{border-collapse:collapse;margin:1rem 0}"
    "td,th{padding:.2rem .8rem;text-align:left}"
)


def overview(standing: Standing | None, nonce: str) -> str:
    """What waits, for whom and since when; how the destinations do. `nonce` is the one the policy header names."""
    if standing is None:
        body = "<p>The database does not answer.</p>"
    else:
        body = _table("Partners", ("partner", "backlog", "oldest"), _partners(standing))
        body += _table(
            "Lanes", ("partner", "destination", "waiting", "in flight", "parked", "waits for"), _lanes(standing)
        )
        body += _table("Destinations", ("destination", "state", "breaker", "in flight"), _destinations(standing))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Hookyard</title><style nonce="{escape(nonce)}">'
        f"{STYLE}</style><h1>Hookyard {escape(VERSION)}</h1>{body}</html>"
    )


def _partners(standing: Standing) -> Iterable[tuple[object, ...]]:
    return ((p.partner, p.waiting, _age(p.oldest_seconds)) for p in standing.backlogs)


def _lanes(standing: Standing) -> Iterable[tuple[object, ...]]:
    return (
        (p.partner, lane.destination, lane.waiting, lane.in_flight, lane.parked, lane.blocked_by or "")
        for p in standing.backlogs
        for lane in p.lanes
    )


def _destinations(standing: Standing) -> Iterable[tuple[object, ...]]:
    return ((gate.destination, gate.state, gate.breaker, gate.in_flight) for gate in standing.gates)


def _table(title: str, heads: Iterable[str], rows: Iterable[tuple[object, ...]]) -> str:
    lines = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    head = "".join(f"<th>{escape(head)}</th>" for head in heads)
    return f"<h2>{escape(title)}</h2><table><tr>{head}</tr>{lines}</table>"


def _age(seconds: float | None) -> str:
    return "" if seconds is None else f"{max(0.0, seconds):.0f} s"
