"""Finding events by what is in them."""

from __future__ import annotations

from itertools import count

import pytest

from domain.sources import dedupe_digest
from ingest.pointers import look_up
from storage import events
from storage.search import CHUNK, Needle, search
from tests.by_hand import Hand
from tests.office import ADMIN, running

ANY = events.Filter()
BODIES = (
    b'{"order": {"id": 7615917337495251231}, "note": "gr\\u00fcn"}',
    '{"order": {"id": "A-7"}, "note": "grün"}'.encode(),
    b"\xff\x00 A-7 \x00",
)


def found(hand: Hand, text: str, path: tuple[str, ...] | None = None, wanted: events.Filter = ANY) -> list[int]:
    with hand.store.begin() as connection:
        page = search(connection, wanted, Needle(text, path), look_up, limit=10)
    assert page.looked_to is None
    return [event.place.sequence for event in page.events]


@pytest.fixture
def shop(hand: Hand) -> Hand:
    hand.lane()
    for body in BODIES:
        hand.post(body=body)
    return hand


def test_a_text_is_found_in_any_bytes(shop: Hand) -> None:
    assert found(shop, "A-7") == [3, 2]
    assert found(shop, "grün") == [2]
    assert found(shop, "nowhere") == []
    assert found(shop, "A-7", wanted=events.Filter(until=shop.now(), state="delivered")) == []


def test_a_value_is_found_at_its_place_in_the_json_exactly(shop: Hand) -> None:
    assert found(shop, "A-7", ("order", "id")) == [2]
    assert found(shop, "7615917337495251231", ("order", "id")) == [1]
    assert found(shop, "761591733749525123", ("order", "id")) == []
    assert found(shop, "grün", ("note",)) == [2, 1]


def test_a_search_stops_in_time_and_goes_on_from_there(shop: Hand) -> None:
    shop.post(n=2 * CHUNK, body=b"{}")
    ticks = count()
    pages, before = [], None
    with shop.store.begin() as connection:
        while True:
            page = search(
                connection, ANY, Needle("A-7"), look_up, limit=10, before=before, seconds=1, clock=lambda: next(ticks)
            )
            pages.append([event.place.sequence for event in page.events])
            before = page.looked_to
            if before is None:
                break

    assert pages == [[], [], [3, 2]]


async def test_the_api_searches_by_dedupe_value_text_and_pointer(database_url: str, shop: Hand) -> None:
    shop.partner("other")
    (event,) = shop.post("other")
    shop.sql(
        "INSERT INTO dedupe (partner_id, digest, seq, received_at) SELECT partner_id, :digest, seq, received_at"
        " FROM events WHERE partner_id = 2",
        digest=dedupe_digest("msg_1"),
    )
    async with running(database_url) as client:
        client.headers.update(ADMIN)

        async def ask(**params: str) -> list[str]:
            answer = await client.get("/api/v1/events", params=params)
            assert answer.status_code == 200, answer.text
            return [f"{e['partner']}/{e['sequence']}" for e in answer.json()["items"]]

        assert await ask(dedupe="msg_1") == ["other/1"]
        assert await ask(dedupe="msg_1", partner="shop") == []
        assert await ask(text="A-7", partner="shop") == ["shop/3", "shop/2"]
        assert await ask(text="A-7", pointer="/order/id") == ["shop/2"]
        assert (await client.get("/api/v1/events", params={"pointer": "/a"})).status_code == 422
        assert (await client.get("/api/v1/events", params={"pointer": "a", "text": "b"})).status_code == 422
    assert event.startswith("evt_")
