"""A lane in its owner's memory: head-of-line order, what overtakes, what waits, and reading on."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from domain.lifecycle import Delivery, ParkReason, State
from storage.lanes import LaneRead, Open
from workers.lane import LOW_WATER, MAILBOX, NEVER, Entry, Lane

AT = datetime(2026, 12, 1, tzinfo=UTC)
NOW = 1000.0
STRICT, UNORDERED = 0, None
DONE = Delivery(State.DELIVERED, attempts=1)
QUEUED = Delivery(attempts=1)


def failed(seconds: float) -> Delivery:
    return Delivery(attempts=1, failures=1, retry_in=timedelta(seconds=seconds))


def a_row(sequence: int, key: int | None = STRICT, delivery: Delivery = QUEUED, due_in_ms: int = 0) -> Open:
    return Open(sequence, AT, delivery, key, due_in_ms, 2500)


def a_read(tail: int, *rows: Open) -> LaneRead:
    return LaneRead(tail, list(rows))


def load(lane: Lane, tail: int, *rows: Open) -> list[Open]:
    lane.begin_read()
    return lane.loaded(a_read(tail, *rows), MAILBOX, NOW)


def a_lane(sequences: Iterable[int] = (), key: int | None = STRICT) -> Lane:
    """A lane that knows everything: these sequences wait in it."""
    lane = Lane((1, 2), 3)
    load(lane, 0)
    push(lane, *sequences, key=key)
    return lane


def push(lane: Lane, *sequences: int, key: int | None = STRICT) -> list[bool]:
    return [lane.push(sequence, AT, lane.tail, key, None) for sequence in sequences]


def take(lane: Lane, now: float = NOW) -> Entry:
    entry = lane.candidate(now)
    assert entry is not None
    lane.begin(entry)
    return entry


def waiting(lane: Lane) -> list[int]:
    return [entry.sequence for entry in lane.queue]


# --- strict ----------------------------------------------------------------------------------------------------------


def test_the_next_of_a_strict_lane_waits_until_the_one_before_it_is_settled() -> None:
    lane = a_lane([1, 2])
    first = take(lane)
    assert (first.sequence, lane.candidate(NOW), lane.next_due(NOW)) == (1, None, NEVER)

    lane.end(first, DONE, NOW)

    assert take(lane).sequence == 2


def test_a_retry_holds_a_strict_lane_until_it_is_due() -> None:
    lane = a_lane([1, 2])

    lane.end(take(lane), failed(seconds=5), NOW)

    assert lane.candidate(NOW + 4.9) is None
    assert lane.next_due(NOW) == NOW + 5
    assert take(lane, NOW + 5).sequence == 1


def test_a_retry_that_another_owner_began_to_wait_for_is_not_due_earlier_here() -> None:
    lane = a_lane()

    load(lane, 2, a_row(1, due_in_ms=3000), a_row(2))

    assert lane.candidate(NOW + 2.9) is None
    assert lane.next_due(NOW) == NOW + 3
    assert take(lane, NOW + 3).sequence == 1


def test_a_strict_lane_goes_on_behind_what_was_parked() -> None:
    lane = a_lane([1, 2])

    lane.end(take(lane), Delivery(State.PARKED, park_reason=ParkReason.REJECTED), NOW)

    assert take(lane).sequence == 2


def test_a_holding_delivery_stops_what_is_strict_behind_it() -> None:
    lane = a_lane([1, 2])

    lane.end(take(lane), Delivery(State.PARKED, park_reason=ParkReason.REJECTED, holding=True), NOW)

    assert (lane.candidate(NOW), lane.next_due(NOW), lane.should_read, lane.is_idle) == (None, NEVER, False, False)


def test_a_holding_delivery_in_the_table_stops_only_what_comes_after_it() -> None:
    lane = a_lane()
    held = Delivery(State.PARKED, attempts=3, park_reason=ParkReason.REJECTED, holding=True)

    load(lane, 3, a_row(1), a_row(2, delivery=held), a_row(3))

    first = take(lane)
    lane.end(first, DONE, NOW)
    assert (first.sequence, lane.candidate(NOW), lane.held_at) == (1, None, 2)


def test_a_hold_is_over_once_the_lane_is_read_without_it() -> None:
    lane = a_lane([1, 2])
    lane.end(take(lane), Delivery(State.PARKED, park_reason=ParkReason.REJECTED, holding=True), NOW)

    lane.forget()
    load(lane, 2, a_row(2))

    assert take(lane).sequence == 2


# --- unordered -------------------------------------------------------------------------------------------------------


def test_unordered_deliveries_fly_side_by_side() -> None:
    lane = a_lane([1, 2, 3], key=UNORDERED)

    assert [take(lane).sequence for _ in range(3)] == [1, 2, 3]


def test_an_unordered_retry_lets_the_others_pass_and_comes_back_when_due() -> None:
    lane = a_lane([1, 2, 3], key=UNORDERED)
    lane.end(take(lane), failed(seconds=5), NOW)

    assert take(lane).sequence == 2
    assert take(lane, NOW + 5).sequence == 1
    assert take(lane, NOW + 5).sequence == 3


def test_of_unordered_retries_the_one_due_first_is_first() -> None:
    lane = a_lane([1, 2], key=UNORDERED)
    one, two = take(lane), take(lane)
    lane.end(one, failed(seconds=9), NOW)
    lane.end(two, failed(seconds=3), NOW)

    assert (lane.candidate(NOW), lane.next_due(NOW)) == (None, NOW + 3)
    assert take(lane, NOW + 3).sequence == 2
    assert take(lane, NOW + 9).sequence == 1


def test_a_hold_stops_nothing_that_is_unordered() -> None:
    lane = a_lane()
    held = Delivery(State.PARKED, park_reason=ParkReason.REJECTED, holding=True)

    load(lane, 2, a_row(1, delivery=held), a_row(2, UNORDERED))

    assert take(lane).sequence == 2


# --- both in one lane ------------------------------------------------------------------------------------------------


def test_a_new_order_starts_when_what_was_strict_has_ended() -> None:
    lane = a_lane([1])
    push(lane, 2, 3, key=UNORDERED)
    strict = take(lane)
    assert lane.candidate(NOW) is None

    lane.end(strict, DONE, NOW)

    assert [take(lane).sequence for _ in range(2)] == [2, 3]


def test_what_is_strict_starts_when_all_that_was_unordered_before_it_has_ended() -> None:
    lane = a_lane([1, 2], key=UNORDERED)
    push(lane, 3)
    one, two = take(lane), take(lane)
    lane.end(one, DONE, NOW)
    assert lane.candidate(NOW) is None
    lane.end(two, failed(seconds=5), NOW)
    assert (lane.candidate(NOW), lane.next_due(NOW)) == (None, NOW + 5)

    lane.end(take(lane, NOW + 5), DONE, NOW + 5)

    assert take(lane, NOW + 5).sequence == 3


def test_a_replay_of_something_strict_does_not_wait_for_later_retries() -> None:
    lane = a_lane()

    load(lane, 9, a_row(1), a_row(8, UNORDERED, failed(60), due_in_ms=60_000), a_row(9, UNORDERED))

    replayed = take(lane)
    assert (replayed.sequence, lane.candidate(NOW)) == (1, None)
    lane.end(replayed, DONE, NOW)
    assert take(lane).sequence == 9


# --- behind ----------------------------------------------------------------------------------------------------------


def test_a_new_lane_is_behind_and_reads_from_its_head() -> None:
    lane = Lane((1, 2), 3)

    assert (lane.should_read, lane.begin_read()) == (True, -1)
    assert not lane.push(5, AT, 4, STRICT, None)


def test_a_lane_that_knows_everything_takes_what_is_handed_on() -> None:
    lane = a_lane()
    load(lane, 4)

    assert (push(lane, 5, 6), lane.behind, lane.tail) == ([True, True], False, 6)


def test_a_sequence_the_lane_never_saw_makes_it_read_on_from_where_it_was() -> None:
    lane = a_lane([1, 2])

    assert not lane.push(7, AT, 6, STRICT, None)

    assert (lane.behind, waiting(lane), lane.begin_read()) == (True, [1, 2], 2)
    lane.loaded(a_read(7, *map(a_row, range(3, 8))), MAILBOX, NOW)
    assert (lane.behind, waiting(lane), push(lane, 8)) == (False, [1, 2, 3, 4, 5, 6, 7], [True])


def test_a_full_mailbox_is_read_on_only_when_it_has_room_again() -> None:
    lane = a_lane(range(1, MAILBOX + 1))

    assert push(lane, MAILBOX + 1) == [False]

    assert (len(lane.queue), lane.should_read) == (MAILBOX, False)
    for _ in range(MAILBOX - LOW_WATER):
        lane.end(take(lane), DONE, NOW)
    assert (lane.should_read, lane.begin_read()) == (True, MAILBOX)


def test_a_full_page_leaves_the_lane_behind() -> None:
    lane = Lane((1, 2), 3)
    lane.begin_read()

    lane.loaded(a_read(9, a_row(1), a_row(2)), 2, NOW)

    assert (lane.behind, lane.begin_read()) == (True, 2)


def test_what_is_handed_on_while_a_read_runs_is_read_afterwards() -> None:
    lane = Lane((1, 2), 3)
    lane.begin_read()
    assert not lane.push(2, AT, 1, STRICT, None)

    lane.loaded(a_read(1, a_row(1)), MAILBOX, NOW)

    assert (lane.behind, lane.should_read, lane.begin_read()) == (True, True, 1)


def test_a_lane_without_anything_to_do_need_not_be_kept() -> None:
    lane = a_lane([1])
    entry = take(lane)
    assert not lane.is_idle

    lane.end(entry, DONE, NOW)

    assert lane.is_idle


# --- read again ------------------------------------------------------------------------------------------------------


def test_a_forgotten_lane_keeps_what_is_flying_and_reads_the_rest_from_its_head() -> None:
    lane = a_lane([1, 2, 3])
    flying = take(lane)

    lane.forget()
    assert (waiting(lane), list(lane.flying), lane.begin_read()) == ([], [1], -1)
    foreign = lane.loaded(a_read(3, *map(a_row, (1, 2, 3))), MAILBOX, NOW)

    assert (foreign, waiting(lane)) == ([], [2, 3])
    lane.end(flying, failed(seconds=1), NOW)
    assert waiting(lane) == [1, 2, 3]


def test_an_older_delivery_that_was_replayed_goes_before_all_that_waits() -> None:
    lane = a_lane([5, 6])

    lane.forget()
    load(lane, 6, a_row(2), a_row(5), a_row(6))

    assert take(lane).sequence == 2


def test_a_read_that_began_before_the_lane_was_forgotten_counts_for_nothing() -> None:
    lane = a_lane([1, 2])
    lane.push(9, AT, 8, UNORDERED, None)
    assert lane.begin_read() == 2

    lane.forget()  # a person replayed number 1
    lane.loaded(a_read(9, *map(a_row, range(3, 10))), MAILBOX, NOW)

    assert (waiting(lane), lane.should_read, lane.begin_read()) == ([], True, -1)


def test_what_a_read_saw_of_an_attempt_that_ended_meanwhile_is_past() -> None:
    lane = a_lane([1, 2])
    flying = take(lane)
    lane.forget()
    lane.begin_read()

    lane.end(flying, failed(seconds=5), NOW)
    lane.loaded(a_read(2, a_row(1), a_row(2)), MAILBOX, NOW)

    assert waiting(lane) == [1, 2]
    assert lane.candidate(NOW) is None


def test_an_attempt_of_ours_whose_outcome_is_not_saved_yet_is_not_taken_for_a_strangers() -> None:
    lane = a_lane([1, 2])
    flying = take(lane)
    lane.end(flying, DONE, NOW)
    lane.unsaved.add(1)

    lane.forget()
    foreign = load(lane, 2, a_row(1, delivery=Delivery(State.DELIVERING, attempts=1)), a_row(2))

    assert (foreign, waiting(lane), lane.is_busy) == ([], [2], True)


def test_an_attempt_that_a_predecessor_left_in_flight_is_named_and_stops_the_lane() -> None:
    lane = Lane((1, 2), 3)
    left = a_row(1, delivery=Delivery(State.DELIVERING, attempts=2))

    assert load(lane, 2, left, a_row(2)) == [left]

    assert lane.candidate(NOW) is None
    lane.end(lane.flying[1], QUEUED, NOW)
    assert [take(lane).sequence] == [1]


def test_a_refused_claim_is_back_at_the_head() -> None:
    lane = a_lane([1, 2, 3])
    entry = take(lane)

    lane.end(entry, entry.delivery, NOW)

    assert waiting(lane) == [1, 2, 3]


def test_what_failed_after_the_lane_was_forgotten_is_queued_once() -> None:
    lane = a_lane([1])
    entry = take(lane)

    lane.forget()
    lane.end(entry, failed(5), NOW)
    load(lane, 1, a_row(1, due_in_ms=5000))

    assert waiting(lane) == [1]


def test_a_delivery_is_not_begun_again_before_its_outcome_is_known_to_be_saved() -> None:
    lane = a_lane([1, 2])
    entry = take(lane)
    lane.end(entry, failed(0), NOW)
    lane.unsaved.add(1)

    assert lane.candidate(NOW) is None

    lane.unsaved.discard(1)
    assert lane.candidate(NOW) is entry


# --- walks -----------------------------------------------------------------------------------------------------------

STEP = st.sampled_from(["push", "push", "take", "deliver", "fail", "wait", "forget", "ask", "answer"])


@given(st.lists(STEP, max_size=200))
def test_whatever_happens_a_strict_lane_delivers_each_once_in_order(steps: list[str]) -> None:
    """Against a table that is always right; what the lane reads is what the table had when the read began."""
    lane, now, last = Lane((1, 2), 3), NOW, 0
    table: dict[int, float] = {}  # open deliveries and when they are due
    delivered: list[int] = []
    page: LaneRead | None = None

    def apply(step: str) -> None:
        nonlocal now, last, page
        flying = next(iter(lane.flying.values()), None)
        if step == "push":
            table[last + 1] = 0.0
            lane.push(last + 1, AT, last, STRICT, None)
            last += 1
        elif step == "take" and lane.candidate(now) is not None:
            entry = take(lane, now)
            assert entry.sequence == min(table)
            assert table[entry.sequence] <= now
            assert len(lane.flying) == 1
        elif step == "deliver" and flying is not None:
            del table[flying.sequence]
            delivered.append(flying.sequence)
            lane.end(flying, DONE, now)
        elif step == "fail" and flying is not None:
            table[flying.sequence] = now + 5
            lane.end(flying, failed(5), now)
        elif step == "wait":
            now += 5
        elif step == "forget":
            lane.forget()
        elif step == "ask" and lane.should_read:
            after = lane.begin_read()
            rows = [a_row(s, due_in_ms=max(0, int((due - now) * 1000))) for s, due in table.items() if s > after]
            page = a_read(last, *sorted(rows, key=lambda row: row.sequence)[:4])
        elif step == "answer" and page is not None:
            lane.loaded(page, 4, now)
            page = None

    for step in steps:
        apply(step)
    for _ in range(3 * len(steps) + 3):
        for step in ("answer", "ask", "answer", "wait", "take", "deliver"):
            apply(step)
    assert (table, delivered) == ({}, list(range(1, last + 1)))


def test_a_lane_is_not_read_from_its_head_while_the_fate_of_an_outcome_is_unknown() -> None:
    lane = Lane((1, 1), 0)
    lane.loaded(LaneRead(0, []), MAILBOX, NOW)
    lane.unsaved.add(5)

    lane.forget()
    assert not lane.should_read

    lane.unsaved.discard(5)
    assert lane.should_read
