"""What a process counts between two looks: by partner and destination, as flat numbers that add up.

Spans are counted in buckets that each reach 1.25 times as far as the one before, under keys such as `lag~31`. So the
minutes and processes of a history add up like any counts, and a quantile is at most 12 % off.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

PARTNER, DESTINATION, SYSTEM = "partner", "destination", "system"
Subject = tuple[str, str]  # one of these kinds, and a name
TOTAL: Subject = (SYSTEM, "")
GROWTH = 1.25
LAST_BUCKET = 85  # two days, from a millisecond on


class Tally:
    """Counts since they were last taken. Its subjects are what is configured."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[Subject, Counter[str]] = {}

    def of(self, kind: str, name: str) -> Counter[str]:
        """The counts of a subject, to be raised."""
        found = self._counts.get((kind, name))
        if found is None:
            found = self._counts[kind, name] = Counter()
        return found

    def take(self) -> dict[Subject, dict[str, int]]:
        """What was counted since, and counts begin again; the total is that of all partners."""
        taken = {subject: dict(counts) for subject, counts in self._counts.items() if counts}
        for counts in self._counts.values():
            counts.clear()
        total: Counter[str] = Counter()
        for (kind, _), told in taken.items():
            if kind == PARTNER:
                total.update(told)
        return taken | {TOTAL: dict(total)}


def bucket(figure: str, seconds: float) -> str:
    """The key under which a span is counted."""
    index = math.ceil(math.log(max(seconds * 1000, 1), GROWTH))
    return f"{figure}~{min(index, LAST_BUCKET)}"


def quantiles(counts: Mapping[str, float], figure: str, wanted: Iterable[float]) -> list[float | None]:
    """The seconds below which that part of the spans lie; None where there is none."""
    found = sorted((int(key.partition("~")[2]), n) for key, n in counts.items() if key.startswith(f"{figure}~"))
    total = sum(n for _, n in found)
    return [_reached(found, part * total) if total else None for part in wanted]


def _reached(found: list[tuple[int, float]], wanted: float) -> float:
    seen, reached = 0.0, 0
    for index, n in found:
        seen, reached = seen + n, index
        if seen >= wanted:
            break
    return round(float(GROWTH ** (reached - 0.5)) / 1000, 4)  # the middle of the bucket
