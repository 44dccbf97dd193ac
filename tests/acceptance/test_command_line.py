"""A newcomer's session at the command line: every document has its fields, every refusal its code, and who did it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.acceptance.product import Product
from tests.acceptance.receiver import Receiver, Say, always, fine
from tests.acceptance.sender import JSON, sending

PARTNER = "name state verify max_backlog rate max_body dedupe type order_key created_at"
DESTINATION = (
    "name url state breaker timeout concurrency rate max_attempts retry_base retry_factor retry_cap on_park in_flight"
    " created_at"
)
EVENT = "id partner sequence type state received_at deliveries"
DELIVERY = "destination state park_reason next_attempt_at attempts"
ATTEMPT = "number started_at duration_ms status outcome error replay"
LISTED = "id partner sequence type state received_at"
COUNTS = "selected done skipped failed dry_run id"
BACKLOG = "partner waiting slope_per_minute oldest_seconds lanes"
LANE = "destination waiting in_flight breaker parked oldest_seconds head blocked_by drain_seconds"
AUDIT = "at actor action subject details"
QUICK = ("--max-attempts", "2", "--retry-base", "10ms", "--timeout", "2s", "--breaker-failures", "1000")
FAILED, WRONG_USAGE = 1, 2


def lacks(fields: str, *documents: dict[str, Any]) -> set[str]:
    """Promised fields that are not in one of the documents (of which there is at least one)."""
    assert documents
    return {field for field in fields.split() if any(field not in document for document in documents)}


async def test_a_newcomer_sees_an_event_through(product: Product, receiver: Receiver) -> None:
    receiver.behaviours["/crm?a=b%2Fc"] = lambda arrival: Say(500 if arrival.attempt == 1 else 200)
    await product.ask("partner", "add", "acme", "--max-backlog", "500", "--rate", "100/s")
    made = await product.ask("destination", "add", "crm", receiver.url("/crm?a=b%2Fc"), *QUICK)
    await product.cli("subscribe", "acme", "crm", "--types", "order.*")
    sent = await product.ask("send", "acme", "--type", "order.paid", "--id", "first")
    again = await product.ask("send", "acme", "--type", "order.paid", "--id", "first")
    other = await product.ask("send", "acme", "--type", "news")
    await receiver.until(lambda: receiver.successes("/crm?a=b%2Fc"))
    await product.settled("acme")

    assert made["secret"].startswith("whsec_")
    assert again == {"event": sent["event"], "sequence": 1, "duplicate": True}
    assert (sent["duplicate"], other["sequence"]) == (False, 2)

    partner, destination = await product.ask("partner", "show", "acme"), await product.ask("destination", "show", "crm")
    assert lacks(PARTNER, partner) == lacks(DESTINATION, destination) == set()
    assert (partner["state"], partner["max_backlog"], partner["rate"]) == ("active", 500, "100/s")
    assert (destination["url"], destination["state"]) == (receiver.url("/crm?a=b%2Fc"), "active")
    assert (destination["breaker"], destination["in_flight"], destination["timeout"]) == ("closed", 0, "2s")

    event = await product.ask("event", "show", sent["event"])
    (delivery,) = event["deliveries"]
    assert lacks(EVENT, event) == lacks(DELIVERY, delivery) == lacks(ATTEMPT, *delivery["attempts"]) == set()
    assert (event["partner"], event["sequence"], event["type"]) == ("acme", 1, "order.paid")
    assert (event["state"], delivery["state"], delivery["destination"]) == ("delivered", "delivered", "crm")
    assert [(attempt["number"], attempt["status"]) for attempt in delivery["attempts"]] == [(1, 500), (2, 200)]
    assert (await product.cli("event", "body", sent["event"])).out == receiver.arrivals[0].body
    unwanted = await product.ask("event", "show", other["event"])
    assert (unwanted["state"], unwanted["deliveries"]) == ("delivered", [])

    listed = await product.ask("event", "list", "--partner", "acme")
    assert lacks(LISTED, *listed) == set()
    assert [row["sequence"] for row in listed] == [2, 1]
    assert [row["id"] for row in await product.ask("event", "list", "--partner", "acme", "--type", "order.*")] == [
        sent["event"]
    ]


async def test_replay_and_discard_do_what_their_dry_run_said_and_are_audited(
    product: Product, receiver: Receiver
) -> None:
    receiver.behaviours["/desk"] = always(500)
    await product.lane("press", "desk", receiver.url("/desk"), *QUICK)
    async with sending("press", product.ingest_port) as press:
        for number in range(6):
            await press.send(b'{"type":"story","number":%d}' % number, JSON)
    await product.settled("press")
    parked = await product.ask("parked", "--partner", "press")
    assert lacks(f"{LISTED} destination park_reason", *parked) == set()
    assert [(row["sequence"], row["park_reason"]) for row in parked] == [(n, "attempts_exhausted") for n in range(1, 7)]
    ids = [row["id"] for row in parked]
    everything = ("--partner", "press")

    # the destination is still down
    failed = await asyncio.to_thread(product.run, "replay", ids[0], "--wait", "--json")
    assert (failed.code, failed.document["selected"], failed.document["failed"]) == (FAILED, 1, 1)

    # one is given up, for good
    gone = await rehearsed(product, "discard", ids[5], "--why", "too old")
    assert (gone["selected"], gone["done"]) == (1, 1)
    assert (await product.ask("event", "show", ids[5]))["state"] == "discarded"

    # the rest is sent again, in order
    receiver.behaviours["/desk"] = fine
    assert (await product.refused("replay", *everything)).code == WRONG_USAGE  # nobody there who could say yes
    done = await rehearsed(product, "replay", *everything, "--reason", "attempts_exhausted", extra="--wait")
    assert (done["selected"], done["done"], done["skipped"], done["failed"]) == (5, 5, 0, 0)
    assert receiver.successes("/desk") == [1, 2, 3, 4, 5]
    assert [arrival.all("hookyard-replay") for arrival in receiver.arrivals[-5:]] == [[done["id"]]] * 5

    # nothing is left to do, and that is no error; what was delivered or discarded comes back only when it is named so
    assert (await rehearsed(product, "replay", *everything))["selected"] == 0
    assert (await rehearsed(product, "replay", ids[5], "--state", "discarded", extra="--wait"))["done"] == 1
    skipped = await product.ask("replay", ids[0])
    assert (skipped["selected"], skipped["done"], skipped["skipped"]) == (1, 0, 1)

    audit = await product.ask("audit")
    assert lacks(AUDIT, *audit) == set()
    told = [(row["action"], row["subject"]) for row in audit]
    for action, subject in (("partner add", "press"), ("destination add", "desk"), ("discard", ids[5])):
        assert told.count((action, subject)) == 1
    assert told.count(("replay", ids[0])) == 2
    assert next(row for row in audit if row["action"] == "discard")["details"]["why"] == "too old"


async def rehearsed(product: Product, *argv: str, extra: str = "--yes") -> dict[str, Any]:
    """The counts of the real run, whose dry run has said the same and done nothing."""
    dry = await product.ask(*argv, "--dry-run")
    real: dict[str, Any] = await product.ask(*argv, "--yes", extra)
    assert lacks(COUNTS, dry, real) == set()
    assert (dry["dry_run"], real["dry_run"], dry["done"]) == (True, False, 0)
    assert (dry["selected"], dry["skipped"]) == (real["selected"], real["skipped"])
    return real


async def test_backlog_says_what_waits_and_for_what(product: Product, receiver: Receiver) -> None:
    await product.lane("farm", "market", receiver.url("/market"), *QUICK)
    await product.cli("destination", "pause", "market")
    async with sending("farm", product.ingest_port) as farm:
        await asyncio.sleep(2)  # the pause holds everywhere by then
        events = [await farm.send(b'{"type":"eggs"}', JSON) for _ in range(3)]
    backlog = {row["partner"]: row for row in await product.ask("backlog")}
    (lane,) = backlog["farm"]["lanes"]
    assert lacks(BACKLOG, *backlog.values()) == lacks(LANE, lane) == set()
    assert (backlog["farm"]["waiting"], lane["waiting"], lane["in_flight"]) == (3, 3, 0)
    assert (lane["destination"], lane["head"]) == ("market", events[0].id)
    assert "paused" in lane["blocked_by"]
    assert (await product.ask("destination", "show", "market"))["state"] == "paused"

    await product.cli("destination", "resume", "market")
    await product.settled("farm")
    assert receiver.successes("/market") == [1, 2, 3]


async def test_the_doctor_finds_a_running_system_healthy(product: Product) -> None:
    report = await product.ask("doctor")
    assert report["healthy"] is True
    assert lacks("check ok message", *report["findings"]) == set()
    settings = await product.ask("config")
    assert settings["HOOKYARD_LEASE_SECONDS"] == "2"
    assert settings["HOOKYARD_MASTER_KEY"] in ("***", "(not set)")


REFUSALS = {
    FAILED: [
        ("partner", "show", "nobody"),
        ("destination", "show", "nowhere"),
        ("subscribe", "nobody", "nowhere"),
        ("event", "show", "evt_none"),
        ("event", "body", "evt_none"),
        ("event", "list", "--partner", "nobody"),
        ("parked", "--destination", "nowhere"),
        ("replay", "--partner", "nobody", "--yes"),
        ("send", "nobody"),
    ],
    WRONG_USAGE: [
        ("partner", "add", "No-Name"),
        ("partner", "add", "x", "--verify", "by-heart"),
        ("destination", "add", "x", "http://[::1"),
        ("destination", "add", "x", "http://Example.com/a/../b"),
        ("destination", "add", "x", "http://169.254.169.254/latest"),
        ("replay",),
        ("discard", "--why", "nothing is named"),
        ("discard", "evt_none"),
        ("event", "list", "--state", "lost"),
        ("destination", "add", "x", "http://192.0.2.1/", "--timeout", "soon"),
        ("partner", "edit", "nobody"),
        ("frobnicate",),
        ("event", "show"),
    ],
}


@pytest.mark.parametrize("code", REFUSALS)
async def test_refusals_are_one_line_with_their_code_and_change_nothing(product: Product, code: int) -> None:
    before = await product.ask("audit", "--limit", "1")
    told = await asyncio.gather(*(product.refused(*argv) for argv in REFUSALS[code]))
    assert {answer.argv: answer.code for answer in told} == dict.fromkeys(REFUSALS[code], code)
    assert await product.ask("audit", "--limit", "1") == before


async def test_a_filter_that_selects_nothing_is_no_error(product: Product) -> None:
    await product.cli("partner", "add", "quiet")
    assert await product.ask("event", "list", "--partner", "quiet") == []
    assert await product.ask("parked", "--partner", "quiet") == []
    assert (await product.ask("replay", "--partner", "quiet", "--yes"))["selected"] == 0
