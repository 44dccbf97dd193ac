"""The last day, minute by minute: what each process counted, and how things stood.

Every process writes one row per minute and subject of which it counted something, and one for the total in any case:
where that is missing, nobody counted, and there is no data; where only the subject's is missing, it is zero. Partitions
of a day are made ahead and dropped whole.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from domain.tallies import DESTINATION, PARTNER, SYSTEM, TOTAL, Subject, quantiles
from storage.backlog import backlog
from storage.figures import gates
from storage.recording import columns

MINUTE = timedelta(minutes=1)
KEPT = timedelta(hours=24)
BREAKER = {"closed": 0, "half_open": 1, "open": 2}
GAUGES = ("backlog", "oldest_seconds", "parked", "in_flight", "breaker")
SPANS = ("latency", "lag")
PARTS = (0.5, 0.95, 0.99)
ROLE_OF = {"accepted": "ingest", "duplicates": "ingest", "refused": "ingest", "unverified": "ingest"}
ALWAYS = {  # the figures of a kind that are told even where they were zero all the time
    SYSTEM: ("accepted", "refused", "attempts", "delivered", "failed", "backlog", "oldest_seconds", "parked"),
    PARTNER: ("accepted", "duplicates", "refused", "delivered", "failed", "backlog", "oldest_seconds", "parked"),
    DESTINATION: ("attempts", "delivered", "failed", "backlog", "oldest_seconds", "parked", "in_flight", "breaker"),
}

SAMPLE = sa.text("""
INSERT INTO history (minute, kind, name, role, source, figures)
SELECT :minute, kind, name, 'jobs', '', figures
FROM unnest(CAST(:kinds AS text[]), CAST(:names AS text[]), CAST(:figures AS jsonb[])) AS t (kind, name, figures)
ON CONFLICT DO NOTHING
""")
READ = sa.text("""
SELECT minute, role, figures, kind = :kind AND name = :name AS own FROM history
WHERE (kind, name) IN ((:kind, :name), ('system', '')) AND minute >= :since AND minute < :until
""")
ACROSS = sa.text("""
SELECT name, minute, sum((figures->>:figure)::float8) FROM history
WHERE kind = :kind AND minute >= :since AND minute < :until AND figures ? :figure
GROUP BY name, minute
""")
SAMPLED = sa.text("""
SELECT DISTINCT minute FROM history
WHERE kind = 'system' AND name = '' AND role = :role AND minute >= :since AND minute < :until
""")
DROP_OLD = sa.text("SELECT drop_history()")


def sample(connection: sa.Connection, minute: datetime) -> int:
    """How everything stands is in the history, as of this minute. How many rows that took."""
    found: dict[Subject, Counter[str]] = {TOTAL: Counter()}
    for partner in backlog(connection):
        parked = sum(lane.parked for lane in partner.lanes)
        _stand(found, (PARTNER, partner.partner), partner.waiting, partner.oldest_seconds, parked)
        _stand(found, TOTAL, partner.waiting, partner.oldest_seconds, parked)
        for lane in partner.lanes:
            _stand(found, (DESTINATION, lane.destination), lane.waiting, lane.oldest_seconds, lane.parked)
    for gate in gates(connection):
        standing = found.setdefault((DESTINATION, gate.destination), Counter())
        standing.update({"in_flight": gate.in_flight, "breaker": BREAKER[gate.breaker]})
    told = {subject: {k: v for k, v in counts.items() if v} for subject, counts in found.items()}
    kinds, names, figures = columns({s: counts for s, counts in told.items() if counts or s == TOTAL})
    connection.execute(SAMPLE, {"minute": minute, "kinds": kinds, "names": names, "figures": figures})
    return len(kinds)


def drop_old(connection: sa.Connection) -> int:
    """Days that ended more than a day ago are gone. How many went."""
    return int(connection.execute(DROP_OLD).scalar_one())


@dataclass(frozen=True, slots=True)
class History:
    """Series of the same length, a value per step, oldest first. None: nobody counted then."""

    since: datetime
    until: datetime
    step: timedelta
    series: dict[str, list[float | None]]


def read(
    connection: sa.Connection, kind: str, name: str, *, since: datetime, until: datetime, step: timedelta = MINUTE
) -> History:
    """The history of a partner, a destination or (kind `system`, name empty) of all, in whole minutes and steps."""
    since, until = _whole(since, step), _whole(until, step)
    steps = [_Step() for _ in range(max(0, (until - since) // step))]
    values = {"kind": kind, "name": name, "since": since, "until": since + len(steps) * step}
    for minute, role, figures, own in connection.execute(READ, values):
        steps[(minute - since) // step].add(minute, role, figures if own else {})
    told = [one.told() for one in steps]
    names = dict.fromkeys([*ALWAYS[kind], *(n for figures in told for n in figures)])
    series = {
        figure: [one.value(figure, figures) for one, figures in zip(steps, told, strict=True)] for figure in names
    }
    spans = {f"{span}_p{part * 100:.0f}": (span, part) for span in SPANS for part in PARTS}
    series |= {key: [quantiles(one.counts, span, [part])[0] for one in steps] for key, (span, part) in spans.items()}
    return History(since, until, step, series)


def across(connection: sa.Connection, kind: str, figure: str, *, since: datetime, until: datetime) -> History:
    """One figure of every partner or destination that had any, minute by minute: for small graphs side by side."""
    since, until = _whole(since, MINUTE), _whole(until, MINUTE)
    span = {"since": since, "until": until}
    sampled = {row[0] for row in connection.execute(SAMPLED, span | {"role": _role(figure)})}
    minutes = [since + n * MINUTE for n in range(max(0, (until - since) // MINUTE))]
    empty = [0.0 if minute in sampled else None for minute in minutes]
    found: dict[str, list[float | None]] = {}
    for name, minute, value in connection.execute(ACROSS, span | {"kind": kind, "figure": figure}):
        found.setdefault(name, list(empty))[(minute - since) // MINUTE] = value
    return History(since, until, MINUTE, dict(sorted(found.items())))


class _Step:
    """What is known of one step: counts added up, gauges of its last minute, and which roles have told anything."""

    __slots__ = ("_gauged_at", "counts", "gauges", "roles")

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.gauges: dict[str, float] = {}
        self.roles: set[str] = set()
        self._gauged_at: datetime | None = None

    def add(self, minute: datetime, role: str, figures: Mapping[str, float]) -> None:
        self.roles.add(role)
        if role != "jobs":
            self.counts.update(figures)
        elif figures and (self._gauged_at is None or minute >= self._gauged_at):
            self.gauges, self._gauged_at = dict(figures), minute

    def told(self) -> dict[str, float]:
        """Every figure of it by name, and the sums of those that are told by reason or outcome."""
        told: Counter[str] = Counter({key: n for key, n in self.counts.items() if "~" not in key})
        for key, n in self.counts.items():
            whole, by, outcome = key.partition(":")
            if by:
                told[whole] += n
            if whole == "attempts" and outcome != "success":
                told["failed"] += n
        return dict(told) | self.gauges

    def value(self, figure: str, told: Mapping[str, float]) -> float | None:
        return told.get(figure, 0) if _role(figure) in self.roles else None


def _role(figure: str) -> str:
    """Which role tells a figure."""
    return "jobs" if figure in GAUGES else ROLE_OF.get(figure.partition(":")[0], "worker")


def _stand(
    found: dict[Subject, Counter[str]], subject: Subject, waiting: int, oldest: float | None, parked: int
) -> None:
    figures = found.setdefault(subject, Counter())
    figures.update({"backlog": waiting, "parked": parked})
    figures["oldest_seconds"] = max(figures["oldest_seconds"], round(oldest or 0))


def _whole(moment: datetime, step: timedelta) -> datetime:
    """The beginning of the step that it lies in."""
    epoch = datetime.fromtimestamp(0, UTC)
    return epoch + (moment - epoch) // step * step
