"""The one checker: what must hold after any run, judged by what the partners, the destinations and the database know.

Each check lists its violations in words; none means that it holds. `examine` runs them all. What a fault explains is
bounded: a duplicate after a 2xx only around a fault that touched a worker or PostgreSQL, one per fault and strict lane;
an attempt on record that no destination saw only as lost or interrupted, and only if there was such a fault at all.
Redis and ingest explain neither.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from tests.acceptance.invariants import (
    GOODBYE_SECONDS,
    by_lane,
    miscounted_attempts,
    out_of_order,
)
from tests.acceptance.receiver import Arrival
from tests.chaos.book import Book
from tests.chaos.desk import Deed
from tests.chaos.people import Ban
from tests.chaos.stage import Happened
from tests.chaos.town import (
    DESTINATIONS,
    HOLDING,
    PARTNERS,
    PICKY_ATTEMPTS,
    REJECTED,
    SUBSCRIPTIONS,
    VARIED,
    Mail,
    Posted,
    expected_fate,
    key_of,
)

BEFORE_SECONDS = 1.0  # an answer so long before a fault may not have been committed when it struck
AFTER_SECONDS = 12.0  # lease, answer time-outs and new connections: how long a fault can still cost an answer
EFFECTIVE_SECONDS = 3.0  # an edit is in force everywhere within 2 s, and what was claimed has gone out
SHOWN = 6  # violations of a check that are told
VANISHING = frozenset({"lost", "interrupted"})
CUT = frozenset({"connect_error"})
UNHEARD = VANISHING | {"timeout"}
COSTLY = ("worker", "postgres", "destinations")  # what a fault touches that can cost an answer


@dataclass(frozen=True)
class Seen:
    """All that is known after a run."""

    arrivals: list[Arrival]
    mail: Mail
    happened: list[Happened]
    book: Book
    deeds: list[Deed] = field(default_factory=list)
    bans: list[Ban] = field(default_factory=list)

    @cached_property
    def lanes(self) -> dict[tuple[str, str], list[Arrival]]:
        """Arrivals in order by partner and destination."""
        return {(partner, path.strip("/")): found for (partner, path), found in by_lane(self.arrivals).items()}

    @cached_property
    def duties(self) -> dict[tuple[str, str, int], Reign]:
        """What is to be delivered, and under which order: the subscriptions of the moment of acceptance."""
        reigns = self.reigns
        return {
            (reign.partner, reign.destination, row.seq): reign
            for row in self.book.events
            for reign in reigns
            if reign.partner == row.partner and reign.takes(row)
        }

    @cached_property
    def reigns(self) -> list[Reign]:
        """Each subscription's successive orders; a change of types alone is none."""
        found: list[Reign] = []
        for row in self.book.subscriptions:
            last = found[-1] if found else None
            version = (row.from_seq, row.until_seq, row.types)
            if last and (last.partner, last.destination, last.order) == (row.partner, row.destination, row.ordering):
                last.versions.append(version)
            else:
                found.append(Reign(row.partner, row.destination, row.ordering, [version]))
        return found

    @cached_property
    def lines(self) -> dict[str, list[Arrival]]:
        """Arrivals in order by what must keep order: strict lanes, and the keys of those ordered by key."""
        found: dict[str, list[Arrival]] = defaultdict(list)
        for arrival in self.arrivals:
            reign = self.duties.get((arrival.partner, arrival.place, arrival.sequence))
            if reign is not None and reign.order == "partner":
                found[str(reign)].append(arrival)
            elif reign is not None and reign.order == "key":
                found[f"{reign}, {key_of(arrival)}"].append(arrival)
        return found

    def faults(self, *touching: str) -> list[Happened]:
        """The faults that touched any of these."""
        return [fault for fault in self.happened if fault.touches & set(touching)]

    def had_a_fault(self, since: float, until: float, *touching: str) -> bool:
        """Whether one of them was felt then."""
        return any(
            fault.began_at < until and fault.ended_at + AFTER_SECONDS > since for fault in self.faults(*touching)
        )


@dataclass(frozen=True, slots=True)
class Reign:
    """A time of one order in a subscription: versions `[from_seq, until_seq)` of these types."""

    partner: str
    destination: str
    order: str
    versions: list[tuple[int, int | None, list[str] | None]]

    def takes(self, event: Any) -> bool:
        return any(
            first <= event.seq and (end is None or event.seq < end) and (types is None or event.type in types)
            for first, end, types in self.versions
        )

    def __str__(self) -> str:
        return f"{self.partner} to {self.destination} by {self.order} from {self.versions[0][0]}"


Check = Callable[[Seen], Iterable[str]]


def examine(seen: Seen) -> dict[str, list[str]]:
    """The violations by the name of their check; empty: everything holds."""
    found = {check.__name__: list(check(seen)) for check in CHECKS}
    return {name: bad[:SHOWN] + [f"… {len(bad)} in all"] * (len(bad) > SHOWN) for name, bad in found.items() if bad}


# --- in: what was acknowledged ---------------------------------------------------------------------------------------


def answers_are_as_promised(seen: Seen) -> list[str]:
    return seen.mail.odd


def acknowledged_is_stored(seen: Seen) -> Iterator[str]:
    stored = {(row.partner, row.seq): row.body for row in seen.book.events}
    for event in _acknowledged(seen):
        if stored.get((event.partner, event.sequence)) != event.body:
            yield f"{event.identity} is not stored as {event.partner}'s {event.sequence}"


def stored_is_what_was_sent_once(seen: Seen) -> Iterator[str]:
    sent = {event.body: event for event in seen.mail.posted}
    times = Counter(row.body for row in seen.book.events)
    for row in seen.book.events:
        event = sent.get(row.body)
        if event is None or event.partner != row.partner:
            yield f"{row.partner}'s {row.seq} was never sent"
        elif event.acked_at is not None and event.sequence != row.seq:
            yield f"{event.identity} was acknowledged as {event.sequence} and is stored as {row.seq}"
        elif times[row.body] > 1:
            yield f"{event.identity} is stored {times[row.body]} times"


def sequences_have_no_gaps(seen: Seen) -> Iterator[str]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for row in seen.book.events:
        numbers[row.partner].append(row.seq)
    for head in seen.book.heads:
        found = numbers[head.partner]
        first = seen.book.first(head.partner)
        if found != list(range(first, head.last_seq + 1)):
            yield f"{head.partner} has {len(found)} events from {first} up to {head.last_seq}"
        if head.cursor != head.last_seq:
            yield f"{head.partner} is dispatched up to {head.cursor} of {head.last_seq}"


def numbers_follow_acknowledgements(seen: Seen) -> Iterator[str]:
    """What was first sent after another's 202 has a greater number."""
    for partner in PARTNERS:
        acked = sorted((e.acked_at or 0, e.sequence) for e in _acknowledged(seen) if e.partner == partner)
        heapq.heapify(acked)
        greatest = 0
        for event in sorted((e for e in _acknowledged(seen) if e.partner == partner), key=lambda e: e.sent_at):
            while acked and acked[0][0] < event.sent_at:
                greatest = max(greatest, heapq.heappop(acked)[1])
            if event.sequence <= greatest:
                yield f"{event.identity} is {event.sequence}, sent after {greatest} was acknowledged"


# --- out: what arrived -----------------------------------------------------------------------------------------------


def what_arrives_is_what_was_sent(seen: Seen) -> Iterator[str]:
    sent = {event.body: event for event in seen.mail.posted}
    ids: dict[bytes, str] = {}
    for arrival in seen.arrivals:
        event = sent.get(arrival.body)
        if event is None or event.partner != arrival.partner:
            yield f"{arrival.id} at {arrival.path} was never sent"
        elif event.acked_at is not None and (event.event, event.sequence) != (arrival.id, arrival.sequence):
            yield f"{event.identity} was acknowledged as {event.event} and arrived as {arrival.id}"
        elif ids.setdefault(arrival.body, arrival.id) != arrival.id:
            yield f"{event.identity} arrived as {arrival.id} and as {ids[arrival.body]}"
        if (arrival.partner, arrival.place, arrival.sequence) not in seen.duties:
            yield f"{arrival.id} at {arrival.path} is for nobody"


def arrivals_are_in_order(seen: Seen) -> Iterator[str]:
    """Nothing older after something newer, be it for the first time or again; what people replay in its own order."""
    for name, line in seen.lines.items():
        asked: dict[str, list[Arrival]] = defaultdict(list)
        for arrival in line:
            asked[arrival.replay].append(arrival)
        yield from (f"{name}: {bad}" for arrivals in asked.values() for bad in out_of_order(arrivals))


def a_strict_order_begins_and_ends_with_an_empty_lane(seen: Seen) -> Iterator[str]:
    """Where people change a subscription's order: what has none, or one by key, may overlap with its like only."""
    ends: dict[tuple[str, str, bool], float] = defaultdict(float)
    for reign in seen.reigns:
        pair, is_strict = (reign.partner, reign.destination), reign.order == "partner"
        mine = [a for a in seen.lanes.get(pair, []) if seen.duties.get((a.partner, a.place, a.sequence)) is reign]
        before = max(ends[*pair, True], ends[*pair, False] if is_strict else 0.0)
        if mine and min(arrival.began_at for arrival in mine) < before:
            yield f"{reign} began before what came before it was over"
        ends[*pair, is_strict] = max(ends[*pair, is_strict], *(_end(arrival, seen) for arrival in mine), 0.0)


def a_parked_event_holds_its_lane(seen: Seen) -> Iterator[str]:
    """Until somebody has replayed or discarded it."""
    decisions = [deed for deed in seen.deeds if deed.argv[0] in ("replay", "discard") and HOLDING in deed.argv]
    for (_, destination), lane in seen.lanes.items():
        if destination == HOLDING:
            for before, after in pairwise(lane):
                is_decided = any(before.began_at < d.ended_at and d.began_at < after.began_at for d in decisions)
                if before.status == REJECTED and after.sequence != before.sequence and not is_decided:
                    yield f"{after.sequence} came after {before.sequence}, which nobody had decided about"


def never_two_in_flight(seen: Seen) -> Iterator[str]:
    for name, line in seen.lines.items():
        for before, after in pairwise(line):
            if after.began_at < _end(before, seen):
                yield f"{name}: {after.sequence}/{after.attempt} began during {before.sequence}/{before.attempt}"


def destinations_get_no_more_at_once_than_they_take(seen: Seen) -> Iterator[str]:
    for name, destination in DESTINATIONS.items():
        ends: list[float] = []
        for arrival in sorted((a for a in seen.arrivals if a.place == name), key=lambda a: a.began_at):
            while ends and ends[0] <= arrival.began_at:
                heapq.heappop(ends)
            heapq.heappush(ends, _end(arrival, seen))
            if len(ends) > destination.concurrency:
                yield f"{name} got {len(ends)} at once"


def repeats_after_success_are_explained(seen: Seen) -> Iterator[str]:
    """Around a fault, and one per fault in what is strictly ordered."""
    for name, line in seen.lines.items():
        yield from (f"{name}: {bad}" for bad in _unexplained(line, seen, per_fault=1))
    for reign in seen.reigns:
        if reign.order == "none":
            lane = seen.lanes.get((reign.partner, reign.destination), [])
            mine = [a for a in lane if seen.duties.get((a.partner, a.place, a.sequence)) is reign]
            per_fault = DESTINATIONS[reign.destination].concurrency
            yield from (f"{reign}: {bad}" for bad in _unexplained(mine, seen, per_fault))


def attempts_are_numbered_upwards(seen: Seen) -> Iterator[str]:
    for (partner, destination), lane in seen.lanes.items():
        yield from (f"{partner} to {destination}: {bad}" for bad in miscounted_attempts(lane))


def _unexplained(line: Sequence[Arrival], seen: Seen, per_fault: int) -> Iterator[str]:
    budget = {id(fault): per_fault for fault in seen.faults(*COSTLY)}
    answered: dict[tuple[str, str], float] = {}
    for arrival in line:
        at = answered.pop(
            (arrival.id, arrival.replay), None
        )  # only of the last time: a repeat that failed is retried like any other
        if at is not None:
            near = [
                fault
                for fault in seen.faults(*COSTLY)
                if fault.began_at - BEFORE_SECONDS <= at <= fault.ended_at + AFTER_SECONDS and budget[id(fault)]
            ]
            if near:
                budget[id(min(near, key=lambda fault: fault.ended_at))] -= 1
            else:
                yield f"{arrival.sequence}/{arrival.attempt} came again"
        if arrival.is_success and arrival.ended_at is not None:
            answered[arrival.id, arrival.replay] = arrival.ended_at


def _end(arrival: Arrival, seen: Seen) -> float:
    """When the exchange ended: with its answer, or with its connection, whose goodbye may be noticed late. A frozen
    worker's connection stays open: its exchange ends with its time."""
    ended = arrival.ended_at if arrival.ended_at is not None else float("inf")
    over = arrival.began_at + DESTINATIONS[arrival.place].timeout_seconds
    held_open = any(f.began_at <= ended and f.ended_at >= arrival.began_at for f in seen.faults("worker"))
    if arrival.status is not None:
        return ended
    return over if ended > over and held_open else ended - GOODBYE_SECONDS


# --- the database ----------------------------------------------------------------------------------------------------


def every_event_is_delivered_or_parked_as_expected(seen: Seen) -> Iterator[str]:
    fates = {
        (d.partner, d.destination, d.seq): d.state if d.park_reason is None else f"{d.state}: {d.park_reason}"
        for d in seen.book.deliveries
    }
    discards = {HOLDING, "picky"} & {word for deed in seen.deeds if deed.argv[0] == "discard" for word in deed.argv}
    for partner, destination, seq in seen.duties:
        fate, expected = fates.pop((partner, destination, seq), "not there"), expected_fate(destination, seq)
        may_be_discarded = destination in discards and (destination == HOLDING or expected != "delivered")
        may_be = {expected} | ({"discarded"} if may_be_discarded else set())
        if destination == "picky" and seen.faults("destinations"):  # cut off it may have used its few attempts up
            may_be |= {"parked: attempts_exhausted", "discarded"}
        if fate not in may_be:
            yield f"{partner}'s {seq} to {destination} is {fate}"
    yield from (f"{key} is for nobody" for key in fates)


def subscribers_are_those_of_the_moment_of_acceptance(seen: Seen) -> Iterator[str]:
    """A change is after what was acknowledged before the command, and before what was sent when it had ended."""
    told = {(row.partner, row.destination): row for row in seen.book.subscriptions}
    yield from (f"{pair}: {order}" for pair, order in SUBSCRIPTIONS.items() if told[pair].ordering != order)
    mine = [event for event in _acknowledged(seen) if event.partner == VARIED[0]]
    for deed in seen.deeds:
        if deed.argv[0] == "subscribe" and deed.is_done:
            first = deed.document["from_sequence"]
            late = [e.sequence for e in mine if (e.acked_at or 0) < deed.began_at and e.sequence >= first]
            early = [e.sequence for e in mine if e.sent_at > deed.ended_at and e.sequence < first]
            yield from (f"{seq} is on the wrong side of {deed}" for seq in late + early)


def delivered_means_answered(seen: Seen) -> Iterator[str]:
    """Of each delivery that is delivered the destination has said 2xx, of each that is parked it has not, unless that
    was cut off."""
    answered = {(a.partner, a.place, a.sequence) for a in seen.arrivals if a.is_success}
    for row in seen.book.deliveries:
        is_answered = (row.partner, row.destination, row.seq) in answered
        if (row.state == "delivered") != is_answered and not (is_answered and seen.faults("destinations")):
            yield f"{row.partner}'s {row.seq} to {row.destination} is {row.state}"


def every_request_is_on_record(seen: Seen) -> Iterator[str]:
    """As the attempt of its number, with the status that was answered or as one whose answer nobody heard."""
    rows = {(a.partner, a.destination, a.seq, a.number): a for a in seen.book.attempts}
    cut = CUT if seen.faults("destinations") else frozenset()
    for arrival in seen.arrivals:
        row = rows.get((arrival.partner, arrival.place, arrival.sequence, arrival.attempt))
        if row is None:
            yield f"{arrival.partner}'s {arrival.sequence}/{arrival.attempt} to {arrival.path} is not on record"
        elif row.status is not None and row.status != arrival.status:
            yield f"{arrival.partner}'s {arrival.sequence}/{arrival.attempt}: {arrival.status} is down as {row.status}"
        elif row.status is None and arrival.status is not None and row.outcome not in UNHEARD | cut:
            yield f"{arrival.partner}'s {arrival.sequence}/{arrival.attempt}: {arrival.status} is down as {row.outcome}"


def every_record_was_a_request(seen: Seen) -> Iterator[str]:
    """Or was lost or interrupted in a fault."""
    came = {(a.partner, a.place, a.sequence, a.attempt) for a in seen.arrivals}
    excused = VANISHING if seen.faults("worker", "postgres") else frozenset()
    excused |= CUT | {"timeout"} if seen.faults("destinations") else frozenset()
    for row in seen.book.attempts:
        if (row.partner, row.destination, row.seq, row.number) not in came and row.outcome not in excused:
            yield f"{row.partner}'s {row.seq}/{row.number} to {row.destination} ({row.outcome}) never came"


def losses_are_explained(seen: Seen) -> Iterator[str]:
    """Attempts that are down as lost or interrupted: in a strict lane one per fault that can cost one."""
    lost = Counter((row.partner, row.destination) for row in seen.book.attempts if row.outcome in VANISHING)
    for (partner, destination), n in lost.items():
        if SUBSCRIPTIONS.get((partner, destination)) == "partner" and n > len(seen.faults("worker", "postgres")):
            yield f"{partner} to {destination}: {n} were lost or interrupted"


def attempts_are_counted(seen: Seen) -> Iterator[str]:
    """Each delivery has attempts 1, 2, 3, … up to its count; an exhausted one has spent its budget, and no more."""
    numbers: dict[tuple[str, str, int], list[Any]] = defaultdict(list)
    for row in seen.book.attempts:
        numbers[row.partner, row.destination, row.seq].append(row)
    for row in seen.book.deliveries:
        found = numbers[row.partner, row.destination, row.seq]
        if [attempt.number for attempt in found] != list(range(1, row.attempts + 1)):
            yield f"{row.partner}'s {row.seq} to {row.destination}: {row.attempts} attempts, {len(found)} on record"
        if row.park_reason == "attempts_exhausted":
            failed = sum(_is_failure(a) and a.replay_id == found[-1].replay_id for a in found)
            if (failed, row.failures) != (PICKY_ATTEMPTS, PICKY_ATTEMPTS):
                yield f"{row.partner}'s {row.seq}: given up after {failed} failures, {row.failures} counted"


def nothing_is_open(seen: Seen) -> Iterator[str]:
    left = Counter((d.partner, d.destination, d.state) for d in seen.book.deliveries if d.state in OPEN)
    yield from (f"{partner} to {destination}: {n} {state}" for (partner, destination, state), n in left.items())


def counters_equal_the_deliveries(seen: Seen) -> Iterator[str]:
    for lane in seen.book.lanes:
        said = (lane.waiting, lane.in_flight, lane.holding, lane.tail_seq)
        true = (lane.true_waiting, lane.true_in_flight, lane.true_holding, lane.last)
        if said != true:
            yield f"{lane.name}: waiting, in flight, holding, tail are {said}, but {true} in truth"
        if lane.first_open is not None and lane.head_seq > lane.first_open:
            yield f"{lane.name}: head {lane.head_seq} is above {lane.first_open}, which is open"
    for gate in seen.book.gates:
        if gate.in_flight != gate.truth:
            yield f"gate of {gate.name}: {gate.in_flight} in flight, {gate.truth} in truth"


def parked_is_listed_and_counted(seen: Seen) -> Iterator[str]:
    true = {(d.partner, d.destination, d.seq, d.park_reason) for d in seen.book.deliveries if d.state == "parked"}
    listed = [tuple(row) for row in seen.book.parked]
    if len(listed) != len(true) or set(listed) != true:
        yield f"{len(true)} deliveries are parked, {len(listed)} listed"
    before = {(row.destination, row.reason): row.n for row in seen.book.before.parkings} if seen.book.before else {}
    counted = Counter({(row.destination, row.reason): row.n for row in seen.book.parkings})
    counted.subtract(before)
    if +counted != _ever_parked(seen):
        yield f"parkings are {dict(counted)}, in truth {dict(_ever_parked(seen))}"


def _ever_parked(seen: Seen) -> Counter[tuple[str, str]]:
    """As the attempts tell: a rejection parks at once, and the last refusal of a budget."""
    refusals: Counter[tuple[Any, ...]] = Counter()
    parked: Counter[tuple[str, str]] = Counter()
    for row in seen.book.attempts:
        if row.status == REJECTED:
            parked[row.destination, "rejected"] += 1
        elif row.destination == "picky" and _is_failure(row):
            budget = (row.partner, row.destination, row.seq, row.replay_id)
            refusals[budget] += 1
            parked[row.destination, "attempts_exhausted"] += refusals[budget] == PICKY_ATTEMPTS
    return +parked


def _is_failure(attempt: Any) -> bool:
    """It costs one of a delivery's few."""
    return attempt.outcome not in VANISHING | {"success"}


def no_transaction_is_left_open(seen: Seen) -> list[str]:
    return [row.application_name for row in seen.book.idle_in_transaction]


# --- what people did -------------------------------------------------------------------------------------------------


def commands_end_as_promised(seen: Seen) -> Iterator[str]:
    """Done; or with exit code 1 and one line of why, and only where the database was hurt, or for a good reason."""
    for deed in seen.deeds:
        hurt = seen.had_a_fault(deed.began_at, deed.ended_at, "postgres")
        has_a_line = len(deed.err.strip().splitlines()) == 1 and "internal error" not in deed.err
        if not deed.is_done and not (deed.code == 1 and has_a_line and (hurt or "is not subscribed to" in deed.err)):
            yield str(deed)


def edits_are_in_force_soon(seen: Seen) -> Iterator[str]:
    """Where nothing was hurt meanwhile."""
    for ban in seen.bans:
        if not seen.had_a_fault(ban.since, ban.until, "worker", "postgres"):
            for arrival in seen.arrivals:
                if ban.since + EFFECTIVE_SECONDS < arrival.began_at < ban.until and ban.concerns(arrival):
                    yield f"{ban.what}, and {arrival.id} came {arrival.began_at - ban.since:.1f} s later"


def what_is_replayed_was_asked_for(seen: Seen) -> Iterator[str]:
    """No more deliveries than the command said; if it said nothing, nobody knows how many."""
    came: dict[str, set[tuple[str, str, int]]] = defaultdict(set)
    for arrival in seen.arrivals:
        if arrival.replay:
            came[arrival.replay].add((arrival.partner, arrival.place, arrival.sequence))
    replays = [deed for deed in seen.deeds if deed.argv[0] == "replay"]
    for deed in replays:
        if deed.is_done:
            told = deed.document
            if len(found := came.pop(told["id"], set())) > told["done"]:
                yield f"{deed}: {len(found)} came"
    if came and all(deed.is_done for deed in replays):
        yield from (f"nobody asked for {identity}" for identity in came)


# --- the metrics -----------------------------------------------------------------------------------------------------


def gauges_are_back_at_nothing(seen: Seen) -> Iterator[str]:
    for name in ("backlog", "lane_backlog", "destination_in_flight", "pool_active", "pool_waiting"):
        samples = seen.book.samples(f"hookyard_{name}")
        if not samples:
            yield f"hookyard_{name} is not there"
        yield from (f"hookyard_{name}{list(labels)} is {value:g}" for labels, value in samples.items() if value)


def totals_equal_the_database(seen: Seen) -> Iterator[str]:
    """Exactly; where a process that counts died after a commit or never learned of it, at most."""
    accepted = Counter((row.partner,) for row in seen.book.events)
    attempts = Counter((row.destination, row.outcome) for row in seen.book.attempts)
    yield from _compare("hookyard_events_accepted_total", seen, accepted, ("ingest", "postgres"))
    yield from _compare("hookyard_attempts_total", seen, attempts, ("worker", "postgres"))
    yield from _compare("hookyard_parked_total", seen, _ever_parked(seen), ())


def _compare(name: str, seen: Seen, true: dict[Any, int], excuses: tuple[str, ...]) -> Iterator[str]:
    told = seen.book.gained(name)
    is_excused = bool(seen.faults(*excuses))
    for labels in true.keys() | told.keys():
        said, truth = told.get(labels, 0), true.get(labels, 0)
        if said > truth or (said < truth and not is_excused):
            yield f"{name}{list(labels)} is {said:g}, in truth {truth}"


def _acknowledged(seen: Seen) -> list[Posted]:
    return [event for event in seen.mail.posted if event.acked_at is not None]


def repeats(seen: Seen) -> int:
    """How many arrivals there were of what had been answered 2xx, and that nobody had asked for."""
    found, done = 0, set[tuple[str, str, str]]()
    for arrival in seen.arrivals:
        delivery = (arrival.id, arrival.place, arrival.replay)
        found += delivery in done
        done |= {delivery} if arrival.is_success else set()
    return found


OPEN = frozenset({"queued", "delivering"})
CHECKS: tuple[Check, ...] = (
    answers_are_as_promised,
    acknowledged_is_stored,
    stored_is_what_was_sent_once,
    sequences_have_no_gaps,
    numbers_follow_acknowledgements,
    what_arrives_is_what_was_sent,
    arrivals_are_in_order,
    never_two_in_flight,
    destinations_get_no_more_at_once_than_they_take,
    repeats_after_success_are_explained,
    attempts_are_numbered_upwards,
    a_strict_order_begins_and_ends_with_an_empty_lane,
    a_parked_event_holds_its_lane,
    commands_end_as_promised,
    edits_are_in_force_soon,
    what_is_replayed_was_asked_for,
    subscribers_are_those_of_the_moment_of_acceptance,
    every_event_is_delivered_or_parked_as_expected,
    delivered_means_answered,
    every_request_is_on_record,
    every_record_was_a_request,
    losses_are_explained,
    attempts_are_counted,
    nothing_is_open,
    counters_equal_the_deliveries,
    parked_is_listed_and_counted,
    no_transaction_is_left_open,
    gauges_are_back_at_nothing,
    totals_equal_the_database,
)
