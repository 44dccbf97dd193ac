from collections.abc import AsyncIterator

import pytest

from tests.edge_stand import Stand


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    stand = Stand()
    async with stand.client:
        yield stand
    assert (stand.edge.in_flight, stand.edge.held_bytes) == (0, 0)  # whatever happened, nothing is held for ever
