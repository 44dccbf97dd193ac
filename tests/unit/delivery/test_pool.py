"""Slots that are bounded, and a hung destination that costs only its own."""

import random
from collections import Counter

import pytest

from delivery.pool import Pool


def admit(pool: Pool, destination: int, *, concurrency: int = 10, proven: bool = True) -> bool:
    return pool.try_admit(destination, concurrency=concurrency, proven=proven)


def test_a_destination_never_holds_more_than_its_concurrency() -> None:
    pool = Pool(10)
    assert [admit(pool, 1, concurrency=2) for _ in range(4)] == [True, True, False, False]
    assert pool.in_flight(1) == 2


def test_the_pool_never_holds_more_than_its_size() -> None:
    pool = Pool(3)
    assert [admit(pool, n) for n in range(5)] == [True, True, True, False, False]
    assert pool.active == 3


def test_destinations_without_a_recent_success_share_at_most_half() -> None:
    pool = Pool(10)
    taken = [admit(pool, n, proven=False) for n in range(8)]
    assert sum(taken) == 5
    assert sum(admit(pool, 100 + n) for n in range(8)) == 5


def test_hanging_destinations_leave_a_slot_to_one_that_has_yet_to_show_that_it_lives() -> None:
    pool = Pool(12)
    assert sum(admit(pool, n % 3, proven=False) for n in range(30)) == 5
    assert admit(pool, 100, proven=False)
    assert not admit(pool, 101, proven=False)


def test_a_pool_of_one_still_serves_a_new_destination() -> None:
    assert admit(Pool(1), 1, proven=False)


def test_what_a_destination_holds_counts_by_what_is_known_of_it_now() -> None:
    pool = Pool(4)
    assert admit(pool, 1, proven=False)
    assert admit(pool, 1, proven=False)
    assert not admit(pool, 2, proven=False)
    assert not admit(pool, 1, concurrency=2, proven=True)
    assert admit(pool, 2, proven=False)


def test_busy_destinations_that_begin_to_hang_leave_first_slots_to_everybody_else() -> None:
    pool = Pool(20)
    hung = [admit(pool, n % 4) for n in range(40)]
    assert sum(hung) == 15
    assert admit(pool, 100)
    assert admit(pool, 100)
    assert not admit(pool, 100)


def test_a_slot_nobody_holds_cannot_be_given_back() -> None:
    pool = Pool(1)
    with pytest.raises(KeyError):
        pool.release(1)


def test_the_books_balance_over_a_random_day() -> None:
    rng = random.Random(1)
    pool = Pool(8)
    held: list[int] = []
    for step in range(20_000):
        destination = rng.randrange(6)
        proven = (destination + step // 500) % 3 > 0
        if rng.random() < 0.5 and admit(pool, destination, concurrency=3, proven=proven):
            held.append(destination)
        elif held:
            pool.release(held.pop(rng.randrange(len(held))))
        assert pool.active == len(held) <= 8
        assert all(count <= 3 for count in Counter(held).values())
    for destination in held:
        pool.release(destination)
    assert pool.active == 0
    assert [admit(pool, n, proven=False) for n in range(5)].count(True) == 4
