"""The API over HTTP: the same facts and names as the command line, page by page; refusals as problem documents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from ops.api import shapes
from tests.by_hand import Hand
from tests.office import ADMIN, Office, running


@pytest.fixture
async def office(database_url: str, hand: Hand) -> AsyncIterator[Office]:
    async with running(database_url) as client:
        client.headers.update(ADMIN)
        yield Office(client, hand)


async def got(office: Office, path: str, **params: Any) -> Any:
    answer = await office.client.get(f"/api/v1{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def walked(office: Office, path: str, **params: Any) -> list[Any]:
    """Every item of every page."""
    items, cursor = [], None
    while True:
        page = await got(office, path, **params, **({"cursor": cursor} if cursor else {}))
        items += page["items"]
        cursor = page["next"]
        if cursor is None:
            return items


def refused(answer: httpx.Response, status: int, reason: str) -> None:
    assert (answer.status_code, answer.json()["reason"]) == (status, reason), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status


async def test_answers_have_the_members_that_are_described(office: Office) -> None:
    office.hand.lane()
    first, second = office.hand.posted(2)
    office.hand.park(first)
    described = (
        (shapes.Partner, (await got(office, "/partners"))["items"][0]),
        (shapes.PartnerShown, await got(office, "/partners/shop")),
        (shapes.Destination, (await got(office, "/destinations"))["items"][0]),
        (shapes.DestinationShown, await got(office, "/destinations/warehouse")),
        (shapes.Subscription, (await got(office, "/subscriptions", partner="shop"))["items"][0]),
        (shapes.EventRow, (await got(office, "/parked"))["items"][0]),
        (shapes.Event, await got(office, f"/events/{second}")),
        (shapes.Delivery, (await got(office, f"/events/{first}"))["deliveries"][0]),
        (shapes.Backlog, (await got(office, "/backlog"))[0]),
        (shapes.Lane, (await got(office, "/backlog"))[0]["lanes"][0]),
        (shapes.AuditEntry, (await got(office, "/audit"))["items"][0]),
        (shapes.System, await got(office, "/system")),
        (shapes.Me, await got(office, "/me")),
    )
    for shape, told in described:
        assert set(told) == set(shape.model_fields), shape.__name__


async def test_pages_lead_through_everything_once(office: Office) -> None:
    for n in range(5):
        office.hand.partner(f"p{n}")
        office.hand.destination(f"d{n}")
    office.hand.subscribe("p1", "d1")
    ids = office.hand.posted(7, "p1")
    office.hand.park(*ids)

    assert [p["name"] for p in await walked(office, "/partners", limit=2)] == [f"p{n}" for n in range(5)]
    assert [d["name"] for d in await walked(office, "/destinations", limit=2)] == [f"d{n}" for n in range(5)]
    assert [e["id"] for e in await walked(office, "/events", limit=3)] == ids[::-1]
    assert [e["id"] for e in await walked(office, "/events", limit=7)] == ids[::-1]
    assert [e["id"] for e in await walked(office, "/parked", limit=3)] == ids
    actions = [entry["action"] for entry in await walked(office, "/audit", limit=4)]
    assert actions == ["subscribe", *["destination add", "partner add"] * 5]


async def test_a_body_is_downloaded_byte_for_byte_and_never_shown_as_a_page(office: Office) -> None:
    office.hand.lane()
    body = b"<script>alert(1)</script>\xff\x00"
    (event,) = office.hand.posted(1, body=body)  # type: ignore[arg-type]

    answer = await office.client.get(f"/api/v1/events/{event}/body")

    assert answer.content == body
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")


async def test_what_is_wrong_is_told_as_a_problem(office: Office) -> None:
    get = office.client.get
    refused(await get("/api/v1/partners/nobody"), 404, "not_found")
    refused(await get("/api/v1/nowhere"), 404, "not_found")
    refused(await get("/api/v1/events", params={"partner": "nobody"}), 404, "not_found")
    refused(await get("/api/v1/events", params={"since": "yesterday"}), 422, "invalid")
    refused(await get("/api/v1/events", params={"limit": 0}), 422, "invalid")
    refused(await get("/api/v1/events", params={"cursor": "abc"}), 422, "invalid")
    refused(await get("/api/v1/events/evt_1"), 404, "not_found")
    wrong = await office.client.put("/api/v1/partners/shop")
    refused(wrong, 405, "method_not_allowed")
    assert "GET" in wrong.headers["allow"]


async def test_head_and_options_answer_for_what_is_there(office: Office) -> None:
    office.hand.partner()
    head = await office.client.head("/api/v1/partners/shop")
    options = await office.client.options("/api/v1/partners/shop")

    assert (head.status_code, head.content) == (200, b"")
    assert (options.status_code, options.content) == (204, b"")
    assert {"GET", "HEAD", "OPTIONS"} <= set(options.headers["allow"].split(", "))
