"""The short form of `make chaos` (docs/chaos.md): one seed, and the checker's verdict."""

from __future__ import annotations

import pytest

from tests.chaos.plan import draw
from tests.chaos.run import play
from tests.chaos.stage import standing
from tests.servers import Servers

SEED = 7
FAULTS = ("worker-killed", "database-cut")


@pytest.mark.slow
async def test_everything_holds_after_a_short_storm(own_servers: Servers) -> None:
    async with standing(own_servers) as stage:
        outcome = await play(draw(SEED, seconds=4, faults=FAULTS), stage)

    print(outcome.plan, outcome.figures)
    assert outcome.violations == {}
    assert outcome.figures["acknowledged"] > 100
