"""What must hold whatever happened: each function lists the violations, in words, of what a destination wrote down."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from tests.acceptance.receiver import Arrival
from tests.acceptance.sender import Accepted

# When the other side gives up on a request and starts the next one, its goodbye may be noticed only after the newcomer.
GOODBYE_SECONDS = 0.05


def by_lane(arrivals: Iterable[Arrival]) -> dict[tuple[str, str], list[Arrival]]:
    """Arrivals in order, by partner and destination."""
    lanes: dict[tuple[str, str], list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        lanes[arrival.partner, arrival.path].append(arrival)
    return lanes


def out_of_order(lane: Sequence[Arrival]) -> list[str]:
    """In a strict lane nothing older ever arrives after something newer, be it for the first time or again."""
    return [
        f"{after.sequence} arrived after {before.sequence}"
        for before, after in pairwise(lane)
        if after.sequence < before.sequence
    ]


def in_flight_together(lane: Sequence[Arrival]) -> list[str]:
    """Requests that began while the one before them had neither been answered nor been given up."""
    found = []
    for before, after in pairwise(lane):
        grace = 0.0 if before.status is not None else GOODBYE_SECONDS
        if before.ended_at is None or after.began_at < before.ended_at - grace:
            found.append(f"{after.sequence}/{after.attempt} began during {before.sequence}/{before.attempt}")
    return found


def repeated_after_success(lane: Sequence[Arrival]) -> list[str]:
    """Arrivals of what had been answered 2xx before."""
    done: set[str] = set()
    found = []
    for arrival in lane:
        if arrival.id in done:
            found.append(f"{arrival.sequence}/{arrival.attempt} came again")
        if arrival.is_success:
            done.add(arrival.id)
    return found


def miscounted_attempts(lane: Sequence[Arrival]) -> list[str]:
    """Attempts of an event whose numbers do not rise."""
    last: Counter[str] = Counter()
    found = []
    for arrival in lane:
        if arrival.attempt <= last[arrival.id]:
            found.append(f"{arrival.sequence}: attempt {arrival.attempt} after {last[arrival.id]}")
        last[arrival.id] = arrival.attempt
    return found


def changed(arrivals: Iterable[Arrival], accepted: Iterable[Accepted]) -> list[str]:
    """Arrivals that nobody sent, or with other bytes or another number than was acknowledged."""
    known = {event.id: event for event in accepted}
    found = []
    for arrival in arrivals:
        event = known.get(arrival.id)
        if event is None:
            found.append(f"{arrival.id} was never acknowledged")
        elif (event.partner, event.sequence, event.body) != (arrival.partner, arrival.sequence, arrival.body):
            found.append(f"{arrival.id} changed on the way")
    return found


def lanes_violations(arrivals: Iterable[Arrival], repeats_explained: int = 0) -> dict[str, list[str]]:
    """All of the above about strict lanes; `repeats_explained` is how many losses of a worker (or the like) there were:
    each explains at most one repeat in a strict lane."""
    found: dict[str, list[str]] = {}
    for (partner, path), lane in by_lane(arrivals).items():
        bad = out_of_order(lane) + in_flight_together(lane) + miscounted_attempts(lane)
        repeats = repeated_after_success(lane)
        if len(repeats) > repeats_explained:
            bad += repeats
        if bad:
            found[f"{partner} to {path}"] = bad[:5]
    return found


def numbering(accepted: Iterable[Accepted]) -> dict[str, list[int]]:
    """By partner, sequences as acknowledged to one sender that waited for each answer: must be 1, 2, 3, …"""
    numbers: dict[str, list[int]] = defaultdict(list)
    for event in accepted:
        numbers[event.partner].append(event.sequence)
    return {partner: found for partner, found in numbers.items() if found != list(range(1, len(found) + 1))}
