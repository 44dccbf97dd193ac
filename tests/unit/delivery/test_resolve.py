"""Names that hang hold threads, never other names, and what is our own trouble is not held against anybody."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from ipaddress import ip_address

import pytest

from delivery import resolve
from delivery.client import Client
from delivery.exchange import Outcome, Outgoing
from delivery.resolve import NoThread, Resolver, Unresolvable

THREADS = 8
GOOD = (ip_address("127.0.0.1"),)


class Names:
    """A resolver of the system: names that begin with `hung` hang until `released`."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.asked: list[str] = []

    def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        if host.startswith("hung"):
            self.released.wait()
        return ["127.0.0.1"]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    monkeypatch.setattr(resolve, "THREADS", THREADS)
    monkeypatch.setattr(resolve, "LOOKUP_SECONDS", 0.2)
    monkeypatch.setattr(resolve, "REMEMBERED_SECONDS", 0.0)
    monkeypatch.setattr(resolve, "START_PAUSE_SECONDS", 0.01)
    made = Names()
    yield made
    made.released.set()


async def fates(resolver: Resolver, hosts: Sequence[str], seconds: float = 5.0) -> list[str]:
    told = await asyncio.gather(*(resolver.addresses(host, seconds) for host in hosts), return_exceptions=True)
    return [type(each).__name__ if isinstance(each, BaseException) else "found" for each in told]


def hung(n: int) -> list[str]:
    return [f"hung-{each}.example" for each in range(n)]


async def until_idle(resolver: Resolver) -> None:
    async with asyncio.timeout(5):
        while any(entry.until == float("inf") for entry in resolver._entries.values()):
            await asyncio.sleep(0.01)


async def test_a_name_that_hangs_holds_one_thread_however_often_it_is_asked_for(names: Names) -> None:
    resolver = Resolver(names)

    for _ in range(3):
        assert await fates(resolver, hung(1) * 5) == ["Unresolvable"] * 5

    assert names.asked == hung(1)
    assert await fates(resolver, ["good.example"]) == ["found"]


async def test_names_known_to_hang_leave_threads_to_the_others(names: Names) -> None:
    resolver = Resolver(names)
    assert await fates(resolver, hung(THREADS)) == ["Unresolvable"] * THREADS
    await asyncio.sleep(resolve.LOOKUP_SECONDS)  # each thread began a moment after its name was asked for
    names.released.set()
    await until_idle(resolver)
    names.released.clear()

    told = await fates(resolver, [*hung(THREADS), "good.example"])

    assert told == ["Unresolvable"] * (THREADS // 2) + ["NoThread"] * (THREADS // 2) + ["found"]


async def test_a_name_for_which_no_thread_is_free_is_not_found_fault_with(names: Names) -> None:
    resolver = Resolver(names)
    hanging = asyncio.gather(*(resolver.addresses(host) for host in hung(THREADS)), return_exceptions=True)
    await asyncio.sleep(0)

    for seconds in (0.05, 5.0):
        with pytest.raises(NoThread):
            await resolver.addresses("good.example", seconds)
    exchange = await Client(resolver=resolver).send(Outgoing("http://good.example/", [], b"", 0.05))
    assert exchange.outcome is Outcome.WITHDRAWN

    names.released.set()
    await hanging
    assert await resolver.addresses("good.example") == GOOD


async def test_a_system_without_threads_for_a_moment_costs_that_moment(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [RuntimeError("can't start new thread")] * 3
    start = threading.Thread.start

    def refused_at_first(thread: threading.Thread) -> None:
        if refusals:
            raise refusals.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused_at_first)

    assert await Resolver(names).addresses("good.example") == GOOD


async def test_a_system_without_threads_is_our_trouble(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    resolver = Resolver(names)
    with monkeypatch.context() as broken:
        broken.setattr(threading.Thread, "start", refused)
        with pytest.raises(NoThread):
            await resolver.addresses("good.example")

    assert await resolver.addresses("good.example") == GOOD


async def test_a_caller_in_a_hurry_is_told_that_its_own_time_is_over(names: Names) -> None:
    with pytest.raises(TimeoutError):
        await Resolver(names).addresses(hung(1)[0], 0.05)
    with pytest.raises(Unresolvable):
        await Resolver(names).addresses(hung(1)[0])
