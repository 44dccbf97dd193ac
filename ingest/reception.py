"""What is done with one partner's POSTs: its settings, read once and kept ready."""

from domain.events import pack_headers
from domain.partners import Partner
from domain.sources import dedupe_digest, order_key_hash, parse_source, read, usable_type
from domain.tallies import PARTNER
from domain.verification import Headers, Posting, Reason, Response, Scheme
from ingest.metrics import IngestMetrics
from ingest.pointers import look_up
from storage.log import Arrival

# Never passed on to a destination, so not kept either: a stored credential could only leak.
CREDENTIALS = frozenset({b"authorization", b"cookie", b"proxy-authorization"})


class Reception:
    """Judges and reads a partner's POSTs. Raises at once: ValueError if the settings make no sense to this version."""

    __slots__ = (
        "_dedupe",
        "_order_key",
        "_type",
        "_withheld",
        "accepted",
        "conflicts",
        "duplicates",
        "partner",
        "questions",
        "scheme",
        "tally",
    )

    def __init__(self, partner: Partner, scheme: Scheme, metrics: IngestMetrics) -> None:
        self.partner, self.scheme = partner, scheme
        self._dedupe = parse_source(partner.dedupe)
        self._type = parse_source(partner.type)
        self._order_key = parse_source(partner.order_key)
        self._withheld = CREDENTIALS | scheme.bare_secret_headers(partner.verify_options)
        self.accepted = metrics.accepted.labels(partner.name)
        self.duplicates = metrics.duplicates.labels(partner.name)
        self.conflicts = metrics.conflicts.labels(partner.name)
        self.questions = metrics.questions.labels(partner.name)
        self.tally = metrics.tally.of(PARTNER, partner.name)

    def answer(self, method: str, headers: Headers, query: bytes, now: float) -> Response | Reason | None:
        """What a question asked by another method than POST is answered; None if it is none."""
        partner = self.partner
        posting = Posting(headers, b"", partner.secrets, partner.verify_options, now, method, query)
        return self.scheme.answer(posting, Reason.MISSING)

    def judge(self, headers: Headers, query: bytes, body: bytes, now: float) -> Arrival | Response | Reason:
        """What to store, what to answer a mere question, or why the sender's proof is not accepted."""
        partner = self.partner
        posting = Posting(headers, body, partner.secrets, partner.verify_options, now, query=query)
        verdict = self.scheme.verify(posting)
        told = self.scheme.answer(posting, verdict)
        if told is not None:
            return told
        if isinstance(verdict, Reason):
            return verdict
        identity = read(self._dedupe, headers, body, look_up)
        key = read(self._order_key, headers, body, look_up)
        withheld = self._withheld
        return Arrival(
            partner.id,
            partner.shard,
            None if identity is None else dedupe_digest(identity),
            usable_type(read(self._type, headers, body, look_up)),
            None if key is None else order_key_hash(key),
            pack_headers([header for header in headers if header[0] not in withheld]),
            query or None,
            body,
        )
