"""The desk answers so many at once, and sends nobody away without saying so."""

import asyncio
import threading

import pytest

from ops import desk
from ops.desk import PLACES, Desk
from storage.errors import StorageUnavailable


async def test_who_finds_no_place_in_time_is_told_so_and_places_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "PATIENCE_SECONDS", 0.05)
    asked = Desk("postgresql://nobody@127.0.0.1:1/x", "test", 1)
    done = threading.Event()
    busy = [asyncio.create_task(asked.do(lambda store: done.wait(30))) for _ in range(PLACES)]
    await asyncio.sleep(0)

    with pytest.raises(StorageUnavailable, match="too much"):
        await asked.do(lambda store: None)

    done.set()
    assert await asyncio.gather(*busy) == [True] * PLACES
    assert await asked.do(lambda store: "an answer") == "an answer"
    asked.close()
