"""The API over HTTP: the same facts and names as the command line, page by page; refusals as problem documents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from ops.api import shapes
from ops.cli import send
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


# --- changes ------------------------------------------------------------------------------------------


async def sent(office: Office, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    answer = await office.client.request(method, f"/api/v1{path}", json=body, headers=headers)
    assert answer.status_code < 300, answer.text
    return answer


async def test_the_options_of_a_scheme_are_set_and_changed_one_by_one(office: Office) -> None:
    signed = {"name": "shop", "verify": "hmac", "verify_options": {"header": "X-Sign"}}
    made = (await sent(office, "POST", "/partners", signed)).json()
    change = {"verify_options": {"algorithm": "sha512"}}
    changed = (await sent(office, "PATCH", "/partners/shop", change)).json()

    assert made["secret"]
    assert (made["verify_options"]["header"], made["verify_options"]["algorithm"]) == ("X-Sign", "sha256")
    assert changed["verify_options"] == made["verify_options"] | {"algorithm": "sha512"}


async def test_everything_is_set_up_changed_steered_and_removed(office: Office) -> None:
    shop = {"name": "shop", "verify": "standard", "rate": "5/s", "max_backlog": 10}
    depot = {"name": "depot", "url": "https://depot.example/in?key=1", "timeout": "7s", "headers": ["X-Key: hush"]}
    partner = (await sent(office, "POST", "/partners", shop)).json()
    destination = (await sent(office, "POST", "/destinations", depot)).json()
    assert partner["secret"].startswith("whsec_")
    assert destination["secret"].startswith("whsec_")
    assert (partner["rate"], destination["timeout"], destination["headers"]) == ("5/s", "7s", ["x-key"])

    outcome = (await sent(office, "PUT", "/subscriptions/shop/depot", {"types": ["order.*"]})).json()
    assert (outcome["outcome"], outcome["from_sequence"]) == ("new", 1)
    changed = (await sent(office, "PATCH", "/partners/shop", {"rate": None, "max_body": 10})).json()
    assert (changed["rate"], changed["max_body"], changed["max_backlog"]) == (None, 10, 10)
    changed = (await sent(office, "PATCH", "/destinations/depot", {"park_on": [451, 422], "on_park": "hold"})).json()
    assert (changed["park_on"], changed["on_park"], changed["timeout"]) == ([422, 451], "hold", "7s")

    for noun in ("partners/shop", "destinations/depot"):
        for action, state in (("pause", "paused"), ("resume", "active")):
            told = (await sent(office, "POST", f"/{noun}/{action}")).json()
            assert (told["state"], told["changed"]) == (state, True)
            assert not (await sent(office, "POST", f"/{noun}/{action}")).json()["changed"]
        assert (await sent(office, "POST", f"/{noun}/rotate-secret", {"overlap": "1h"})).json()["secret"]
    await sent(office, "POST", "/destinations/depot/reset-breaker")
    shown = (await got(office, "/partners/shop"), await got(office, "/destinations/depot"))
    assert not any("whsec_" in str(told) or "hush" in str(told) for told in shown)

    assert (await sent(office, "DELETE", "/subscriptions/shop/depot")).json()["waiting"] == 0
    for noun in ("partners/shop", "destinations/depot"):
        await sent(office, "DELETE", f"/{noun}")
        refused(await office.client.get(f"/api/v1/{noun}"), 404, "not_found")
    entries = await walked(office, "/audit")
    assert {entry["actor"] for entry in entries} == {"admin"}
    assert len(entries) == 15


async def test_an_edit_that_asks_for_what_was_changed_meanwhile_is_refused(office: Office) -> None:
    office.hand.lane()
    for noun, change in (("partners/shop", {"max_body": 10}), ("destinations/warehouse", {"timeout": "9s"})):
        seen = (await office.client.get(f"/api/v1/{noun}")).headers["etag"]
        await sent(office, "POST", f"/{noun}/pause")  # no edit
        now = (await sent(office, "PATCH", f"/{noun}", change, **{"if-match": seen})).headers["etag"]

        late = await office.client.patch(f"/api/v1/{noun}", json=change, headers={"if-match": seen})

        refused(late, 412, "changed")
        assert now != seen
        assert (await office.client.get(f"/api/v1/{noun}")).headers["etag"] == now


async def test_what_is_sent_wrong_is_refused_and_nothing_secret_is_repeated(office: Office) -> None:
    office.hand.lane()
    for method, path, body in (
        ("POST", "/partners", {"name": "NO"}),
        ("POST", "/partners", {"name": "x", "max_backlog": 0}),
        ("POST", "/partners", {"name": "x", "colour": "red"}),
        ("POST", "/partners", {"name": "x", "verify": "hush-hush"}),
        ("POST", "/partners", {"name": "x", "verify": "hmac"}),
        ("POST", "/partners", {"name": "x", "verify": "github", "verify_options": {"header": "x-a"}}),
        ("POST", "/destinations", {"name": "x", "url": "http://127.0.0.1/hush-hush"}),
        ("POST", "/destinations", {"name": "x", "url": "https://x.example/", "secret": ["hush-hush"]}),
        ("PATCH", "/destinations/warehouse", {"timeout": "soon"}),
        ("PATCH", "/partners/shop", {"max_body": None}),
        ("POST", "/replays", {}),
        ("POST", "/discards", {"partner": "shop"}),
        ("PUT", "/subscriptions/shop/warehouse", []),
    ):
        answer = await office.client.request(method, f"/api/v1{path}", json=body)
        refused(answer, 422, "invalid")
        assert "hush-hush" not in answer.text or "verify" in str(body)
    refused(await office.client.post("/api/v1/partners", json={"name": "shop"}), 409, "conflict")
    refused(await office.client.post("/api/v1/partners", content=b"{" * 10), 422, "invalid")
    refused(await office.client.post("/api/v1/partners", content=b'"' + b"x" * 2_000_000), 413, "too_large")


async def test_a_url_is_told_whole_to_those_only_who_may_change_it(office: Office) -> None:
    await sent(office, "POST", "/destinations", {"name": "depot", "url": "https://depot.example/in?key=hush"})
    whole = await got(office, "/destinations/depot")
    answer = await office.client.get("/api/v1/destinations/depot", headers=office.bearer("operator"))
    assert whole["url"] == "https://depot.example/in?key=hush"
    assert answer.json()["url"].startswith("https://depot.example/… #")
    assert "hush" not in (await office.client.get("/api/v1/audit")).text


async def test_roles_stop_at_what_is_not_theirs(office: Office) -> None:
    office.hand.lane()
    viewer, operator = office.bearer("viewer"), office.bearer("operator")
    for headers, method, path in (
        (viewer, "POST", "/partners/shop/pause"),
        (viewer, "POST", "/replays"),
        (viewer, "POST", "/replays/rpl_1/cancel"),
        (viewer, "POST", "/partners/shop/send"),
        (operator, "POST", "/partners"),
        (operator, "PATCH", "/destinations/warehouse"),
        (operator, "DELETE", "/partners/shop"),
        (operator, "POST", "/partners/shop/rotate-secret"),
        (operator, "PUT", "/subscriptions/shop/warehouse"),
        (operator, "DELETE", "/tokens/a-viewer"),
    ):
        refused(await office.client.request(method, f"/api/v1{path}", headers=headers, json={}), 403, "forbidden")
    assert (await office.client.post("/api/v1/partners/shop/pause", headers=operator)).status_code == 200


async def test_the_same_post_again_under_its_key_does_nothing_again(office: Office) -> None:
    new, key = {"name": "shop", "verify": "standard"}, {"idempotency-key": "k-1"}
    first = await sent(office, "POST", "/partners", new, **key)
    again = await sent(office, "POST", "/partners", new, **key)
    other = await office.client.post("/api/v1/partners", json={"name": "other"}, headers=key)

    assert (again.status_code, again.content) == (201, first.content)
    assert "idempotency-replayed" in again.headers
    refused(other, 422, "key_reused")
    assert first.json()["secret"] not in str(office.sql("SELECT a::text, encode(sealed, 'escape') FROM answers a"))

    somebody = office.bearer("admin", "bob") | key
    refused(await office.client.post("/api/v1/partners", json=new, headers=somebody), 409, "conflict")


async def test_a_refused_post_leaves_its_key_free_and_an_unanswered_one_does_not(office: Office) -> None:
    key = {"idempotency-key": "k-1"}
    refused(await office.client.post("/api/v1/partners", json={"name": "NO"}, headers=key), 422, "invalid")
    await sent(office, "POST", "/partners", {"name": "shop"}, **key)
    office.sql("UPDATE answers SET sealed = NULL")
    late = await office.client.post("/api/v1/partners", json={"name": "shop"}, headers=key)
    refused(late, 409, "in_progress")
    office.sql("UPDATE answers SET at = now() - interval '2 days'")
    late = await office.client.post("/api/v1/partners", json={"name": "shop"}, headers=key)
    refused(late, 409, "conflict")


# --- many at once -------------------------------------------------------------------------------------


async def test_a_dry_run_counts_and_changes_nothing(office: Office) -> None:
    office.hand.lane()
    office.hand.park(*office.hand.posted(3))
    for path, body in (("/replays", {}), ("/discards", {"why": "old"})):
        told = (await sent(office, "POST", path, {"partner": "shop", "dry_run": True} | body)).json()
        assert (told["id"], told["dry_run"], told["selected"]) == (None, True, 3)
    assert office.hand.states() == ["parked"] * 3
    assert await walked(office, "/replays") == []


async def test_a_replay_is_begun_counted_and_listed(office: Office) -> None:
    office.hand.lane()
    events = office.hand.posted(3)
    office.hand.park(*events)

    answer = await sent(office, "POST", "/replays", {"events": events[:2]})

    assert answer.status_code == 202
    assert answer.headers["location"] == "/api/v1/replays/rpl_1"
    told = await ended(office, "rpl_1")
    assert (told["selected"], told["done"], told["actor"]) == (2, 2, "admin")
    assert office.hand.states() == ["queued", "queued", "parked"]
    refused(await office.client.post("/api/v1/replays/rpl_1/cancel"), 409, "conflict")
    discarded = await sent(office, "POST", "/discards", {"partner": "shop", "why": "superseded"})
    assert (await ended(office, discarded.json()["id"]))["done"] == 1
    assert [r["kind"] for r in await walked(office, "/replays", limit=1)] == ["discard", "replay"]


async def test_a_replay_is_paused_resumed_and_cancelled(office: Office) -> None:
    office.hand.lane()
    office.hand.park(*office.hand.posted(5))
    await sent(office, "POST", "/replays", {"partner": "shop", "rate": "1/s"})

    assert (await sent(office, "POST", "/replays/rpl_1/pause")).json()["state"] == "paused"
    assert (await sent(office, "POST", "/replays/rpl_1/resume")).json()["state"] == "running"
    assert (await sent(office, "POST", "/replays/rpl_1/cancel")).json()["state"] == "cancelled"
    told = await ended(office, "rpl_1")

    assert told["state"] == "cancelled"
    assert office.hand.states().count("queued") == told["done"] < 5
    actions = [entry["action"] for entry in await walked(office, "/audit", subject="rpl_1")]
    assert actions == ["replay cancel", "replay resume", "replay pause", "replay"]


async def test_what_was_cut_off_is_told_as_such_and_can_only_be_cancelled(office: Office) -> None:
    office.hand.lane()
    office.hand.park(*office.hand.posted(2))
    await sent(office, "POST", "/replays", {"partner": "shop"})
    office.sql("UPDATE replays SET finished_at = NULL, state = 'running', beat_at = now() - interval '2 minutes'")

    told = await got(office, "/replays/rpl_1")
    assert (told["state"], told["expected"], told["done"]) == ("interrupted", 2, 2)
    refused(await office.client.post("/api/v1/replays/rpl_1/resume"), 409, "conflict")
    told = (await sent(office, "POST", "/replays/rpl_1/cancel")).json()
    assert (told["state"], told["finished_at"] is None) == ("cancelled", False)


async def test_a_backfill_brings_stored_events_to_a_new_destination(office: Office) -> None:
    office.hand.lane()
    office.hand.posted(3)
    office.hand.destination("depot")
    office.hand.subscribe("shop", "depot")
    body = {"partner": "shop", "destination": "depot"}

    assert (await sent(office, "POST", "/backfills", body | {"dry_run": True})).json()["selected"] == 3
    begun = (await sent(office, "POST", "/backfills", body)).json()

    assert (await ended(office, begun["id"]))["done"] == 3
    assert office.hand.states("depot") == ["queued"] * 3
    office.hand.destination("other")
    refused(await office.client.post("/api/v1/backfills", json=body | {"destination": "other"}), 409, "conflict")


async def ended(office: Office, name: str) -> Any:
    async with asyncio.timeout(30):
        while (told := await got(office, f"/replays/{name}"))["finished_at"] is None:
            await asyncio.sleep(0.05)
    return told


async def test_head_and_options_answer_for_what_is_there(office: Office) -> None:
    office.hand.partner()
    head = await office.client.head("/api/v1/partners/shop")
    options = await office.client.options("/api/v1/partners/shop")

    assert (head.status_code, head.content) == (200, b"")
    assert (options.status_code, options.content) == (204, b"")
    assert {"GET", "HEAD", "OPTIONS"} <= set(options.headers["allow"].split(", "))


# --- a test event -------------------------------------------------------------------------------------


async def test_a_test_event_is_sent_as_the_partner_would(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    posted: list[tuple[str, bytes, dict[str, str]]] = []

    def ingest(base: str, path: str, body: bytes, headers: list[tuple[str, str]]) -> dict[str, Any]:
        posted.append((path, body, dict(headers)))
        return {"event": "evt_1", "sequence": 1, "duplicate": False}

    monkeypatch.setattr(send, "_post", ingest)
    office.hand.partner(verify="standard")

    told = (await sent(office, "POST", "/partners/shop/send", {"type": "order.paid"})).json()

    ((path, body, headers),) = posted
    assert (told["sequence"], path) == (1, "/in/shop")
    assert b"order.paid" in body
    assert headers["webhook-signature"].startswith("v1,")
    assert (await walked(office, "/audit", subject="shop"))[0]["action"] == "send"
    refused(await office.client.post("/api/v1/partners/shop/send", json={"id": "a\nb"}), 422, "invalid")


async def test_an_ingest_that_is_away_is_told(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "_base", lambda bind: "http://127.0.0.1:1")
    office.hand.partner()
    refused(await office.client.post("/api/v1/partners/shop/send", json={"id": "©"}), 502, "not_accepted")
