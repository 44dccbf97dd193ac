"""What a worker counts. Created with a registry by whoever runs it; partners and destinations are the only open
labels.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from domain.lifecycle import State
from domain.tallies import DESTINATION, PARTNER, Tally, bucket
from storage.lanes import Outcome

ATTEMPT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LAG_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
BATCH = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class Metrics:
    """The worker's metrics of the contract. In multi-process use gauges add up over living processes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(name, text, labels, registry=registry, multiprocess_mode="livesum")

        self.tally = Tally()  # for the history
        self._attempts = Counter(
            "hookyard_attempts", "Attempts that have ended.", ("destination", "outcome"), registry=registry
        )
        self._seconds = Histogram(
            "hookyard_attempt_seconds",
            "Duration of attempts.",
            ("destination",),
            registry=registry,
            buckets=ATTEMPT_SECONDS,
        )
        self._lag = Histogram(
            "hookyard_delivery_lag_seconds", "From accepted to delivered.", registry=registry, buckets=LAG_SECONDS
        )
        self._batch = Histogram(
            "hookyard_journal_batch_size", "Transitions per commit of the journal.", registry=registry, buckets=BATCH
        )
        self.pool_active = gauge("hookyard_pool_active", "Attempts in flight.")
        self.pool_waiting = gauge("hookyard_pool_waiting", "Lanes that wait for a slot.")
        self.pool_size = gauge("hookyard_pool_size", "Attempts that may be in flight.")
        self.shards_owned = gauge("hookyard_shards_owned", "Shards this worker owns.")
        self._depth = gauge("hookyard_queue_depth", "Items in a bounded queue.", ("queue",))
        self._capacity = gauge("hookyard_queue_capacity", "Bound of that queue.", ("queue",))

    def attempted(self, partner: str, destination: str, outcome: Outcome, lag_ms: int | None) -> None:
        """An attempt and its outcome are committed."""
        if outcome.outcome == "withdrawn":
            return  # it never was one
        self._attempts.labels(destination, outcome.outcome).inc()
        self._seconds.labels(destination).observe(outcome.duration_ms / 1000)
        if lag_ms is not None:
            self._lag.observe(lag_ms / 1000)
        for counts in (self.tally.of(PARTNER, partner), self.tally.of(DESTINATION, destination)):
            counts[f"attempts:{outcome.outcome}"] += 1
            counts[bucket("latency", outcome.duration_ms / 1000)] += 1
            if lag_ms is not None:
                counts[bucket("lag", lag_ms / 1000)] += 1
            if outcome.after.state is State.DELIVERED:
                counts["delivered"] += 1
            elif outcome.after.park_reason is not None:
                counts[f"parkings:{outcome.after.park_reason}"] += 1

    def batch(self, n: int) -> None:
        """The journal committed n transitions."""
        self._batch.observe(n)

    def queue(self, name: str, depth: int, capacity: int) -> None:
        """A bounded queue's depth and bound."""
        self._depth.labels(name).set(depth)
        self._capacity.labels(name).set(capacity)
