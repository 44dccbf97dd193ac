"""How fast things go, from counts that were read before."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

WINDOW_SECONDS = 10.0
APART_SECONDS = 0.5  # however often the pages ask
THINGS = 1_000  # that are remembered; the one asked for least lately is forgotten

Counted = deque[tuple[float, float]]


class Paces:
    """Rates over the last ten seconds of things that are counted. `clock` gives seconds of a steady clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, Counted] = OrderedDict()

    def measure(self, thing: str, count: float | None) -> float | None:
        """Per second; None before there are two counts some time apart, and where there is none now."""
        if count is None:
            self._seen.pop(thing, None)
            return None
        now, seen = self._clock(), self._seen.setdefault(thing, deque())
        self._seen.move_to_end(thing)
        if len(self._seen) > THINGS:
            self._seen.popitem(last=False)
        if seen and count < seen[-1][1]:
            seen.clear()  # who counted has begun again
        if not seen or now - seen[-1][0] >= APART_SECONDS:
            seen.append((now, count))
        while len(seen) > 2 and now - seen[1][0] > WINDOW_SECONDS:
            seen.popleft()
        (began, first), (ended, last) = seen[0], seen[-1]
        return (last - first) / (ended - began) if ended > began else None


@dataclass(frozen=True, slots=True)
class Flow:
    """What the roles under the same supervisor have counted, all together; None where they told nothing."""

    accepted: float | None
    delivered: float | None
    in_use: float | None
    waiting: float | None
    pool_size: float | None


def flow(metrics: list[Metric]) -> Flow:
    """The figures of the overview out of the metrics of the roles."""
    found: dict[str, float] = {}
    for metric in metrics:
        for sample in metric.samples:
            if sample.labels.get("outcome", "success") == "success":
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    names = ("events_accepted_total", "attempts_total", "pool_active", "pool_waiting", "pool_size")
    known = bool(found)
    counted = [found.get(f"hookyard_{name}", 0.0 if known and name.endswith("total") else None) for name in names]
    return Flow(*counted)
