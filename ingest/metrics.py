"""What ingest counts. Labels are names of known partners and words of our own; nothing a sender wrote becomes one."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from domain.tallies import PARTNER, Tally

NOBODY = ""  # the partner label of what names no known partner


class IngestMetrics:
    """The metrics of one process, in the registry it is given."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.tally = Tally()  # for the history
        self.accepted = Counter(
            "hookyard_events_accepted", "Events stored; a duplicate is none.", ["partner"], registry=registry
        )
        self.duplicates = Counter(
            "hookyard_events_duplicate", "POSTs that repeated a stored event.", ["partner"], registry=registry
        )
        self.conflicts = Counter(
            "hookyard_events_conflicting",
            "Duplicates that came with other bytes than the stored event.",
            ["partner"],
            registry=registry,
        )
        self.refused = Counter(
            "hookyard_events_refused",
            "POSTs that were not stored; partner is empty where none is known.",
            ["partner", "reason"],
            registry=registry,
        )
        self.unverified = Counter(
            "hookyard_verification_failures", "Proofs that were not accepted.", ["partner", "reason"], registry=registry
        )
        self.questions = Counter(
            "hookyard_questions_answered",
            "Requests with which a provider only wanted to see that somebody is there.",
            ["partner"],
            registry=registry,
        )
        self.batch_size = Histogram(
            "hookyard_commit_batch_size",
            "Events per COMMIT.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
            registry=registry,
        )
        self.hints_dropped = Counter(
            "hookyard_hints_dropped", "Hints that Redis did not take; the log has what they tell.", registry=registry
        )
        self.depth = Gauge(
            "hookyard_queue_depth",
            "What waits in a bounded queue.",
            ["queue"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.capacity = Gauge(
            "hookyard_queue_capacity",
            "The bound of a queue.",
            ["queue"],
            registry=registry,
            multiprocess_mode="livesum",
        )

    def refuse(self, partner: str, reason: str) -> None:
        """One more POST was refused."""
        self.refused.labels(partner, reason).inc()
        if partner != NOBODY:
            self.tally.of(PARTNER, partner)[f"refused:{reason}"] += 1

    def show_queue(self, name: str, depth: int, capacity: int) -> None:
        """The queue's gauges tell these figures."""
        self.depth.labels(name).set(depth)
        self.capacity.labels(name).set(capacity)
