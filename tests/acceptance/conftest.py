"""Running products for acceptance tests: one that a run (a worker of pytest-xdist) shares, and one of a test's own."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.product import Product
from tests.acceptance.receiver import Receiver, listening_receiver


@pytest.fixture(scope="session")
def product() -> Iterator[Product]:
    """A running product that the tests of a run share: each brings partners and destinations of its own names."""
    yield from _running(lambda folder: Product(folder, LEASE_SECONDS="2"), started=True)


@pytest.fixture
def own_product() -> Iterator[Product]:
    """A product that this test may stop, kill and start; it is not running yet."""
    yield from _running(lambda folder: Product(folder, LEASE_SECONDS="2"), started=False)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with listening_receiver() as listening:
        yield listening


def _running(make: Callable[[Path], Product], *, started: bool) -> Iterator[Product]:
    """Not in pytest's own temporary folder: that one is closed to the unprivileged user the servers run as."""
    with tempfile.TemporaryDirectory(prefix="hookyard-test-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        made = make(Path(name))
        try:
            yield made.start() if started else made
        finally:
            made.destroy()
