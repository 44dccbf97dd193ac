"""Slots in fair turns, and a hung destination that costs only its own."""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from delivery.pool import Pool


def admit(pool: Pool, destination: int, *, concurrency: int = 10, proven: bool = True) -> bool:
    return pool.try_admit(destination, concurrency=concurrency, proven=proven)


def wait(
    pool: Pool, destination: int, grant: Callable[[], None], *, concurrency: int = 10, proven: bool = True
) -> None:
    pool.wait(destination, grant, concurrency=concurrency, proven=proven)


def test_a_destination_never_holds_more_than_its_concurrency() -> None:
    pool = Pool(10)
    assert [admit(pool, 1, concurrency=2) for _ in range(4)] == [True, True, False, False]
    assert pool.in_flight(1) == 2


def test_the_pool_never_holds_more_than_its_size() -> None:
    pool = Pool(3)
    assert [admit(pool, n) for n in range(5)] == [True, True, True, False, False]
    assert (pool.active, pool.waiting) == (3, 0)


def test_destinations_without_a_recent_success_share_at_most_half() -> None:
    pool = Pool(10)
    taken = [admit(pool, n, proven=False) for n in range(8)]
    assert sum(taken) == 5
    assert sum(admit(pool, 100 + n) for n in range(8)) == 5


def test_a_pool_of_one_still_serves_a_new_destination() -> None:
    assert admit(Pool(1), 1, proven=False)


def test_a_success_frees_the_half_that_was_taken() -> None:
    pool = Pool(4)
    assert admit(pool, 1, proven=False)
    assert admit(pool, 1, proven=False)
    assert not admit(pool, 2, proven=False)
    pool.adjust(1, concurrency=10, proven=True)
    assert admit(pool, 2, proven=False)


def test_a_slot_given_back_goes_to_those_who_wait_in_turns() -> None:
    pool = Pool(1)
    assert admit(pool, 9)
    order: list[str] = []
    for name in ("a1", "a2", "b1", "a3", "c1"):
        wait(pool, "abc".index(name[0]), lambda name=name: order.append(name))  # type: ignore[misc]
    assert pool.waiting == 5
    for holder in (9, 0, 1, 2, 0):
        pool.release(holder)
    assert order == ["a1", "b1", "c1", "a2", "a3"]
    pool.release(0)
    assert (pool.active, pool.waiting) == (0, 0)


def test_a_destination_at_its_limit_is_passed_over_until_it_gives_back() -> None:
    pool = Pool(2)
    granted: list[int] = []
    assert admit(pool, 1, concurrency=1)
    wait(pool, 1, lambda: granted.append(1), concurrency=1)
    wait(pool, 2, lambda: granted.append(2))
    assert granted == [2]
    pool.release(1)
    assert granted == [2, 1]


def test_nobody_overtakes_those_of_his_destination_who_wait() -> None:
    pool = Pool(1)
    order: list[str] = []

    def give_back_and_ask_again() -> None:
        pool.release(1)
        order.append("overtook" if admit(pool, 1) else "waits")

    assert admit(pool, 1)
    wait(pool, 1, give_back_and_ask_again)
    wait(pool, 1, lambda: order.append("second"))
    pool.release(1)
    assert order == ["waits", "second"]


def test_whoever_gives_up_is_not_called() -> None:
    pool = Pool(1)
    granted: list[int] = []
    grant = lambda: granted.append(1)  # noqa: E731 - it must be the same object twice
    assert admit(pool, 1)
    wait(pool, 2, grant)
    assert pool.give_up(2, grant)
    assert not pool.give_up(2, grant)
    pool.release(1)
    assert granted == []
    assert pool.active == 0


def test_a_callback_may_give_its_slot_back_at_once() -> None:
    pool = Pool(1)
    granted: list[int] = []
    assert admit(pool, 0)

    def pass_on(n: int) -> None:
        granted.append(n)
        pool.release(n)

    for n in range(1, 2000):
        wait(pool, n, partial(pass_on, n))
    pool.release(0)
    assert granted == list(range(1, 2000))
    assert pool.active == 0


def test_a_slot_nobody_holds_cannot_be_given_back() -> None:
    pool = Pool(1)
    with pytest.raises(KeyError):
        pool.release(1)


def test_hung_destinations_leave_the_living_their_half_whatever_the_order() -> None:
    pool = Pool(20)
    hung = Counter[int]()
    for n in range(500):
        wait(pool, n % 50, lambda n=n: hung.update([n % 50]), concurrency=5, proven=False)  # type: ignore[misc]
    assert hung.total() == 10
    assert sum(admit(pool, 1000, concurrency=50) for _ in range(30)) == 10


def test_the_books_balance_over_a_random_day() -> None:
    rng = random.Random(1)
    pool = Pool(8)
    held: list[int] = []
    for step in range(20_000):
        destination = rng.randrange(6)
        proven = (destination + step // 500) % 3 > 0
        match rng.randrange(4):
            case 0:
                if pool.try_admit(destination, concurrency=3, proven=proven):
                    held.append(destination)
            case 1:
                wait(pool, destination, lambda d=destination: held.append(d), concurrency=3, proven=proven)  # type: ignore[misc]
            case _ if held:
                pool.release(held.pop(rng.randrange(len(held))))
            case _:
                pool.adjust(destination, concurrency=3, proven=proven)
        assert pool.active == len(held) <= 8
        assert all(count <= 3 for count in Counter(held).values())
    while held:
        pool.release(held.pop())
    assert (pool.active, pool.waiting) == (0, 0)
