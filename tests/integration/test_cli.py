"""The command line against a real database: what people and scripts type, what they get, and how it ends."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ops.cli import run
from tests.by_hand import URL, Hand
from tests.typed import KEY, ROOT, environment


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Result]


@pytest.fixture
def cli(
    database_url: str,
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Cli:
    """`hookyard …`, in this process, with settings of this test's own."""
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "MASTER_KEY": KEY,
        "DATA_DIR": str(tmp_path),
        "ACTOR": "ada",
    }.items():
        monkeypatch.setenv(f"HOOKYARD_{name}", value)

    def type_(*argv: str) -> Result:
        capfd.readouterr()
        code = run(argv)
        return Result(code, *capfd.readouterr())

    return type_


def ok(result: Result) -> Result:
    assert result.code == 0, result.err
    return result


def refused(result: Result, code: int, told: str) -> None:
    assert result.code == code, result
    assert told in result.err
    assert len(result.err.splitlines()) == 1
    assert result.out == ""


def test_a_partner_is_added_listed_shown_edited_paused_and_removed(cli: Cli) -> None:
    added = ok(cli("partner", "add", "shop", "--rate", "5/s", "--max-backlog", "10"))
    assert "anybody who can reach the endpoint may post" in added.err

    (listed,) = ok(cli("partner", "list", "--json")).json()
    shown = ok(cli("partner", "show", "shop", "--json")).json()
    assert listed.items() <= shown.items()
    assert {
        "name": "shop",
        "state": "active",
        "verify": "none",
        "rate": "5/s",
        "max_backlog": 10,
    }.items() <= shown.items()
    ok(cli("partner", "edit", "shop", "--rate", "none", "--max-body", "10"))
    ok(cli("partner", "pause", "shop"))
    shown = ok(cli("partner", "show", "shop", "--json")).json()
    assert (shown["state"], shown["rate"], shown["max_body"], shown["max_backlog"]) == ("paused", None, 10, 10)
    assert "active" in ok(cli("partner", "resume", "shop")).out
    ok(cli("partner", "remove", "shop"))
    refused(cli("partner", "show", "shop"), 1, "no partner 'shop'")
    assert ok(cli("partner", "list", "--json")).json() == []
    actions = [(row["action"], row["actor"]) for row in ok(cli("audit", "--json")).json()]
    assert actions == [(f"partner {action}", "ada") for action in ("remove", "resume", "pause", "edit", "add")]


def test_a_destination_is_shown_with_every_option_as_it_was_written(cli: Cli) -> None:
    options = {
        "timeout": "7s", "retry_base": "100ms", "retry_cap": "2m", "suspend_after": "3d", "breaker_reset": "90s",
        "rate": "0.5/s", "on_park": "hold",
    }  # fmt: skip
    flags = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", value)]
    ok(cli("destination", "add", "depot", URL, "--park-on", "422,451", "--header", "X-Key: hush", *flags))

    shown = ok(cli("destination", "show", "depot", "--json")).json()

    assert {name: shown[name] for name in options} == options
    assert (shown["url"], shown["park_on"], shown["headers"]) == (URL, [422, 451], ["x-key"])
    assert (shown["state"], shown["breaker"], shown["in_flight"], shown["max_attempts"]) == ("active", "closed", 0, 12)
    ok(cli("destination", "edit", "depot", "--park-on", "", "--no-headers", "--rate", "none", "--url", f"{URL}/2"))
    after = ok(cli("destination", "show", "depot", "--json")).json()
    assert (after["park_on"], after["headers"], after["rate"], after["url"]) == ([], [], None, f"{URL}/2")
    assert after["timeout"] == "7s"
    assert "hush" not in ok(cli("audit", "--json")).out


def test_a_secret_that_was_made_is_shown_once(cli: Cli) -> None:
    told = ok(cli("destination", "add", "depot", URL)).out
    secret = next(word for word in told.split() if word.startswith("whsec_"))

    for argv in (("destination", "show", "depot"), ("destination", "list"), ("audit",), ("config",)):
        assert secret not in ok(cli(*argv)).out
    rotated = ok(cli("destination", "rotate-secret", "depot", "--overlap", "1m", "--json")).json()
    assert rotated["secret"] not in (None, secret)
    again = ok(cli("destination", "rotate-secret", "depot", "--json")).json()
    assert again["secret"] not in (None, secret, rotated["secret"])
    assert "overlap=1d" in ok(cli("audit", "--limit", "1")).out


def test_a_partners_secret_is_rotated_with_an_overlap_of_a_day_unless_told_otherwise(cli: Cli) -> None:
    ok(cli("partner", "add", "shop", "--verify", "standard"))
    for options, told in (((), "overlap=1d"), (("--overlap", "0s"), "overlap=0s")):
        assert ok(cli("partner", "rotate-secret", "shop", *options, "--json")).json()["secret"].startswith("whsec_")
        assert told in ok(cli("audit", "--limit", "1")).out


def test_a_scheme_is_described_by_its_options_and_edited_one_by_one(cli: Cli) -> None:
    ok(cli("partner", "add", "shop", "--verify", "hmac", "--verify-header", "X-Sign", "--verify-prefix", "v1="))
    shown = ok(cli("partner", "show", "shop", "--json")).json()
    assert (shown["verify"], shown["verify_options"]["header"]) == ("hmac", "X-Sign")
    assert (shown["verify_options"]["algorithm"], shown["verify_options"]["content"]) == ("sha256", "{body}")

    ok(cli("partner", "edit", "shop", "--verify-algorithm", "sha512", "--verify-content", "{timestamp}.{body}"))
    after = ok(cli("partner", "show", "shop", "--json")).json()["verify_options"]
    assert after == shown["verify_options"] | {"algorithm": "sha512", "content": "{timestamp}.{body}"}
    assert "encoding hex, header X-Sign, id" in ok(cli("partner", "show", "shop")).out
    told = ok(cli("audit", "--limit", "1")).out
    assert "verify_algorithm=sha512" in told

    refused(cli("partner", "edit", "shop", "--verify-algorithm", "md5"), 2, "sha1, sha256, sha512 are allowed")
    refused(cli("partner", "edit", "shop", "--verify", "square"), 2, "--verify square needs --verify-url")
    assert ok(cli("partner", "show", "shop", "--json")).json()["verify_options"] == after
    ok(cli("partner", "edit", "shop", "--verify", "square", "--verify-url", "https://a.example/in/shop"))
    changed = ok(cli("partner", "show", "shop", "--json")).json()
    assert (changed["verify_options"], changed["dedupe"]) == ({"url": "https://a.example/in/shop"}, "json:/event_id")
    ok(cli("partner", "edit", "shop", "--verify", "none"))
    assert ok(cli("partner", "show", "shop", "--json")).json()["verify_options"] == {}


def test_a_secret_of_any_scheme_rests_sealed_and_is_never_shown(cli: Cli, hand: Hand) -> None:
    given = {
        "basic": "ann:hunter2:hunter2", "bearer": "token-hunter2", "meta": "app-hunter2:verify-hunter2",
        "slack": "slack-hunter2", "api-key": "key-hunter2",
    }  # fmt: skip
    for scheme, secret in given.items():
        ok(cli("partner", "add", scheme, "--verify", scheme, "--secret", secret))
        for argv in (("partner", "show", scheme), ("partner", "show", scheme, "--json"), ("audit",)):
            assert "hunter2" not in ok(cli(*argv)).out
    assert "hunter2" not in str(hand.rows("SELECT sealed::text, encode(sealed, 'escape') FROM partner_secrets"))
    assert "hunter2" not in str(hand.rows("SELECT p::text FROM partners p"))
    told = ok(cli("partner", "add", "made", "--verify", "basic")).out
    assert re.search(r"^secret hookyard:[0-9a-f]{64}$", told, re.MULTILINE)


def test_secrets_come_from_files_and_wrong_ones_are_not_repeated(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("whsec_" + "QUFB" * 8 + "\n")
    added = ok(cli("destination", "add", "depot", URL, "--secret", f"@{tmp_path / 'secret'}"))
    assert "secret" not in added.out
    refused(cli("destination", "add", "other", URL, "--secret", "@nowhere"), 2, "--secret")
    wrong = cli("destination", "add", "other", URL, "--secret", "whsec_h!dden")
    refused(wrong, 2, "whsec_")
    assert "h!dden" not in wrong.err


WRONG = (
    (("no-such-command",), 2),
    (("partner", "add"), 2),
    (("partner", "add", "x", "--no-such-option"), 2),
    (("partner", "edit", "x"), 2),
    (("partner", "add", "x", "--rate", "fast"), 2),
    (("partner", "add", "Upper"), 2),
    (("partner", "add", "x", "--verify", "runes"), 2),
    (("partner", "add", "x", "--secret", "y"), 2),
    (("partner", "add", "x", "--verify", "hmac"), 2),
    (("partner", "add", "x", "--verify", "github", "--verify-header", "x-a"), 2),
    (("partner", "add", "x", "--verify-header", "x-a"), 2),
    (("partner", "add", "x", "--verify", "basic", "--secret", "nobody"), 2),
    (("partner", "add", "x", "--verify", "discord"), 2),
    (("partner", "show", "x"), 1),
    (("partner", "show", "\udcff"), 1),
    (("destination", "show", "\udcff"), 1),
    (("parked", "--partner", "\udcff"), 1),
    (("destination", "add", "d", "notaurl"), 2),
    (("destination", "add", "d", "http://10.0.0.1/"), 2),
    (("destination", "add", "d", URL, "--max-attempts", "none"), 2),
    (("destination", "add", "d", URL, "--timeout", "1ms"), 2),
    (("destination", "add", "d", URL, "--park-on", "4xx"), 2),
    (("destination", "add", "d", URL, "--header", "X-A: b\r\nEvil: 1"), 2),
    (("destination", "pause", "x"), 1),
    (("subscribe", "x", "y"), 1),
    (("subscribe", "x", "y", "--order", "sometimes"), 2),
    (("event", "show", "no-such-event"), 1),
    (("event", "body", "no-such-event"), 1),
    (("event", "list", "--state", "lost"), 2),
    (("event", "list", "--since", "yesterday"), 2),
    (("event", "list", "--partner", "x"), 1),
    (("parked", "--destination", "x"), 1),
    (("parked", "--reason", "mood"), 2),
    (("replay",), 2),
    (("replay", "no-such-event"), 1),
    (("replay", "--state", "parked"), 2),
    (("replay", "--partner", "x", "--yes"), 1),
    (("discard", "--state", "parked", "--yes"), 2),
    (("discard", "--why", "x"), 2),
    (("discard", "--state", "delivered", "--why", "x", "--yes"), 2),
    (("backfill", "x", "y", "--yes"), 1),
    (("send", "x"), 1),
    (("send", "x", "--id", ""), 2),
    (("send", "x", "--type", " "), 2),
    (("parked", "--limit", "0"), 2),
    (("destination", "add", "d", URL, "--retry-base", "10s", "--retry-cap", "1s"), 2),
    (("destination", "add", "d", URL, "--retry-base", "1d"), 2),
    (("partner", "add", "x", "--verify", "standard", "--secret", "whsec_QUFB"), 2),
    (("audit", "--subject", "nope"), 1),
    (("audit", "--subject", "rpl_7"), 1),
    (("audit", "--subject", "evt_nope"), 1),
    (("audit", "--subject", "x/1"), 1),
)


def test_what_is_wrong_is_told_in_one_line_and_nothing_is_done(cli: Cli) -> None:
    for argv, code in WRONG:
        result = cli(*argv)
        assert (argv, result.code, result.out) == (argv, code, "")
        assert len(result.err.splitlines()) == 1, argv
    assert ok(cli("audit", "--json")).json() == []


def test_order_by_key_needs_a_key(cli: Cli, hand: Hand) -> None:
    hand.partner()
    hand.destination()
    refused(cli("subscribe", "shop", "warehouse", "--order", "key"), 1, "partner shop has no order key")
    ok(cli("partner", "edit", "shop", "--order-key", "json:/id"))
    ok(cli("subscribe", "shop", "warehouse", "--order", "key"))


def test_where_something_waits_removal_has_to_be_meant(cli: Cli, hand: Hand) -> None:
    hand.lane()
    hand.posted(2)

    refused(cli("destination", "remove", "warehouse"), 2, "2 deliveries wait")
    refused(cli("partner", "remove", "shop"), 2, "2 deliveries wait")
    removed = ok(cli("destination", "remove", "warehouse", "--yes"))
    assert "2 deliveries that waited are parked (destination_removed)" in removed.out
    assert "can be discarded, not replayed" in removed.err
    parked = ok(cli("parked", "--partner", "shop", "--destination", "warehouse", "--json")).json()
    assert [row["park_reason"] for row in parked] == ["destination_removed"] * 2


def test_one_delivery_is_one_and_what_is_parked_counts_before_a_removal(cli: Cli, hand: Hand) -> None:
    hand.lane()
    hand.park(*hand.posted(1))
    refused(
        cli("destination", "remove", "warehouse"),
        2,
        "destination warehouse: 1 delivery is parked already; what is parked",
    )
    hand.posted(1)
    refused(
        cli("destination", "remove", "warehouse"),
        2,
        "1 delivery waits and will be parked, 1 delivery is parked already",
    )
    assert "1 delivery still waits" in ok(cli("unsubscribe", "shop", "warehouse")).out
    assert "(2) can be discarded" in ok(cli("destination", "remove", "warehouse", "--yes")).err


def test_an_event_is_also_meant_by_its_partner_and_sequence(cli: Cli, hand: Hand) -> None:
    hand.lane()
    first, second = hand.posted(2)
    hand.park(first, second)

    assert ok(cli("event", "show", "shop/2", "--json")).json()["id"] == second
    assert ok(cli("event", "body", "shop/1")).out == "{}"
    ok(cli("discard", "shop/2", "--why", "a test"))
    ok(cli("replay", "shop/1"))
    assert hand.states() == ["queued", "discarded"]
    assert ok(cli("audit", "--subject", second, "--json")).json()[0]["action"] == "discard"
    for nothing in ("shop/3", "shop/0", "shop/-1", "shop/1/2", "shop/", "/1", "nobody/1", "shop/" + "9" * 30):
        refused(cli("event", "show", nothing), 1, "no event")


def test_a_name_that_was_given_again_means_the_partner_who_has_it(cli: Cli, hand: Hand) -> None:
    hand.partner()
    (old,) = hand.posted(1)
    ok(cli("partner", "remove", "shop", "--yes"))
    assert ok(cli("event", "show", "shop/1", "--json")).json()["id"] == old
    hand.partner()
    refused(cli("event", "show", "shop/1"), 1, "no event 'shop/1'")
    (new,) = hand.posted(1)
    assert ok(cli("event", "show", "shop/1", "--json")).json()["id"] == new


def test_events_are_listed_and_shown_for_people_and_for_programs(cli: Cli, hand: Hand) -> None:
    hand.lane()
    (event,) = hand.posted(kind="order.paid")
    hand.sql(
        "INSERT INTO attempts (partner_id, destination_id, seq, number, received_at, started_at, duration_ms, status,"
        " outcome, error, replay_id) SELECT partner_id, destination_id, seq, 1, received_at, now(), 5, 503,"
        " 'http_error', E'bad\\x1b[31m', 7 FROM deliveries"
    )

    shown = ok(cli("event", "show", event, "--json")).json()
    (listed,) = ok(cli("event", "list", "--type", "order.*", "--json")).json()
    story = ok(cli("event", "show", event)).out

    assert {k: shown[k] for k in listed} == listed
    assert (listed["id"], listed["sequence"], listed["state"]) == (event, 1, "queued")
    (delivery,) = shown["deliveries"]
    (attempt,) = delivery["attempts"]
    assert (delivery["destination"], attempt["status"], attempt["replay"]) == ("warehouse", 503, "rpl_7")
    assert "503" in story
    assert "\x1b" not in story
    assert event in ok(cli("event", "list", "--destination", "warehouse")).out
    assert ok(cli("event", "list", "--type", "refund", "--json")).json() == []


def test_a_body_is_written_byte_for_byte(hand: Hand, database_url: str, tmp_path: Path) -> None:
    hand.partner()
    body = bytes(range(256)) + b"\r\n\x00 end"
    (event,) = hand.post(body=body)
    assert shell(["event", "body", event], database_url, tmp_path).stdout == body


def test_a_replay_by_selection_needs_a_yes_and_tells_the_truth(cli: Cli, hand: Hand) -> None:
    hand.lane()
    ids = hand.posted(3)
    hand.park(*ids)

    refused(cli("replay", "--partner", "shop"), 2, "--yes")
    foretold = ok(cli("replay", "--partner", "shop", "--dry-run", "--json")).json()
    assert foretold == {
        "id": None, "dry_run": True, "selected": 3, "done": 0, "skipped": 0, "failed": 0, "skipped_because": {},
    }  # fmt: skip
    assert "3 deliveries would be queued again" in ok(cli("replay", "--partner", "shop", "--dry-run")).out
    assert len(ok(cli("parked", "--json")).json()) == 3
    done = ok(cli("replay", "--partner", "shop", "--since", "1h", "--yes", "--json")).json()
    assert (done["selected"], done["done"], done["failed"], done["id"]) == (3, 3, 0, "rpl_1")
    assert "nothing to replay" in ok(cli("replay", "--partner", "shop", "--yes")).out


def test_a_named_event_needs_no_yes_and_a_skipped_one_says_why(cli: Cli, hand: Hand) -> None:
    hand.lane()
    parked, delivered = hand.posted(2)
    hand.park(parked)
    hand.deliver(delivered)

    told = ok(cli("replay", parked, delivered)).out

    assert "1 delivery queued again" in told
    assert "skipped 1: is delivered" in told
    assert hand.states() == ["queued", "delivered"]


def test_a_replay_that_is_waited_for_fails_if_something_is_parked_again(
    cli: Cli, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.lane()
    (event,) = hand.posted()
    hand.park(event)
    monkeypatch.setattr("storage.replays.POLL_SECONDS", (0.0, 0.0))
    monkeypatch.setattr("ops.cli.replay._progress", lambda counts: hand.park(event) if not counts.failed else None)

    result = cli("replay", event, "--wait", "--json")

    assert result.code == 1
    assert (result.json()["done"], result.json()["failed"]) == (0, 1)


def test_a_discard_says_who_and_why(cli: Cli, hand: Hand) -> None:
    hand.lane()
    ids = hand.posted(2)
    hand.park(*ids)

    ok(cli("discard", ids[0], "--why", "a test"))
    assert ok(cli("discard", "--partner", "shop", "--why", "x", "--dry-run", "--json")).json()["selected"] == 1

    assert hand.states() == ["discarded", "parked"]
    (entry, *_) = ok(cli("audit", "--subject", ids[0], "--json")).json()
    assert (entry["actor"], entry["action"], entry["details"]["why"]) == ("ada", "discard", "a test")


def test_a_backfill_brings_what_was_stored_before(cli: Cli, hand: Hand) -> None:
    hand.partner()
    hand.destination()
    hand.posted(3)
    ok(cli("subscribe", "shop", "warehouse"))

    refused(cli("backfill", "shop", "warehouse"), 2, "--yes")
    assert "3 deliveries would be queued" in ok(cli("backfill", "shop", "warehouse", "--dry-run")).out
    assert ok(cli("backfill", "shop", "warehouse", "--yes", "--json")).json()["done"] == 3


def test_the_backlog_is_shown_per_partner_and_lane(cli: Cli, hand: Hand) -> None:
    hand.lane()
    ids = hand.posted(2)
    ok(cli("destination", "pause", "warehouse"))

    (partner,) = ok(cli("backlog", "--json")).json()

    assert (partner["partner"], partner["waiting"], partner["slope_per_minute"]) == ("shop", 2, None)
    (lane,) = partner["lanes"]
    assert (lane["head"], lane["blocked_by"], lane["drain_seconds"]) == (ids[0], "destination paused", None)
    assert "destination paused" in ok(cli("backlog")).out


def test_a_name_that_was_given_again_has_one_lane_and_what_its_last_owner_left(cli: Cli, hand: Hand) -> None:
    hand.lane()
    hand.park(*hand.posted(1))
    ok(cli("destination", "remove", "warehouse", "--yes"))
    ok(cli("destination", "add", "warehouse", URL))
    ok(cli("subscribe", "shop", "warehouse"))

    (partner,) = ok(cli("backlog", "--json")).json()
    assert [(lane["state"], lane["parked"]) for lane in partner["lanes"]] == [("active", 0), ("removed", 1)]
    assert [lane["removed_at"] is None for lane in partner["lanes"]] == [True, False]
    assert "warehouse (removed)" in ok(cli("backlog")).out
    told = ok(cli("replay", "--partner", "shop", "--yes")).out
    assert "skipped 1: destination removed (hookyard backfill PARTNER DESTINATION sends" in told
    ok(cli("discard", "--partner", "shop", "--why", "gone", "--yes"))
    assert len(ok(cli("backlog", "--json")).json()[0]["lanes"]) == 1


def test_the_audit_of_a_request_says_how_far_it_came_and_is_found_by_what_it_concerns(cli: Cli, hand: Hand) -> None:
    hand.lane()
    parked, delivered = hand.posted(2)
    hand.park(parked)
    hand.deliver(delivered)
    ok(cli("replay", "--partner", "shop", "--destination", "warehouse", "--yes"))
    ok(cli("replay", delivered))
    ok(cli("replay", "--partner", "shop", "--yes"))  # selects nothing: that it was asked for is kept

    def found(subject: str) -> list[dict[str, Any]]:
        return [
            row["details"] for row in ok(cli("audit", "--subject", subject, "--json")).json() if "id" in row["details"]
        ]

    assert found("rpl_1") == [{"id": "rpl_1", "selected": 1, "done": 1, "skipped": 0}]
    assert found("rpl_2") == found("shop/2") == [{"id": "rpl_2", "selected": 1, "done": 0, "skipped": 1}]
    assert [row["id"] for row in found("shop")] == ["rpl_3", "rpl_1"]
    assert [row["id"] for row in found("warehouse")] == ["rpl_1"]
    actions = [row["action"] for row in ok(cli("audit", "--subject", "warehouse", "--json")).json()]
    assert actions == ["replay", "subscribe", "destination add"]
    assert "nothing matches" in ok(cli("audit", "--subject", "shop", "--until", "1d")).out
    assert "nothing matches" in ok(cli("audit", "--subject", "something else")).out


def test_the_audit_is_narrowed_by_who_did_what(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    ok(cli("partner", "add", "shop"))
    monkeypatch.setenv("HOOKYARD_ACTOR", "bob")
    ok(cli("partner", "add", "mill"))
    ok(cli("partner", "pause", "shop"))

    def found(*filters: str) -> list[tuple[str, str]]:
        return [(row["action"], row["subject"]) for row in ok(cli("audit", *filters, "--json")).json()]

    assert found("--actor", "ada") == [("partner add", "shop")]
    assert found("--action", "partner add") == [("partner add", "mill"), ("partner add", "shop")]
    assert found("--actor", "bob", "--action", "partner add", "--since", "1h") == [("partner add", "mill")]
    assert "nothing matches" in ok(cli("audit", "--actor", "eve")).out


def test_a_filter_takes_a_name_as_a_whole(cli: Cli) -> None:
    for name in ("a", "a-b", "b"):
        ok(cli("partner", "add", name))
    assert [row["subject"] for row in ok(cli("audit", "--subject", "a", "--json")).json()] == ["a"]


def test_parked_deliveries_are_listed_up_to_a_limit(cli: Cli, hand: Hand) -> None:
    hand.lane()
    hand.park(*hand.posted(3))
    assert len(ok(cli("parked", "--json", "--limit", "2")).json()) == 2
    told = ok(cli("parked", "--limit", "2"))
    assert (len(told.out.splitlines()), told.err) == (
        3,
        "note: these are the first 2; --limit N lists more, --json all\n",
    )
    assert ok(cli("parked", "--limit", "3")).err == ""


def test_the_first_wait_is_no_longer_than_the_longest(cli: Cli) -> None:
    ok(cli("destination", "add", "depot", URL, "--retry-cap", "1s"))
    assert ok(cli("destination", "show", "depot", "--json")).json()["retry_base"] == "1s"
    refused(cli("destination", "edit", "depot", "--retry-base", "2s"), 2, "at most the retry cap (1s) is allowed")
    refused(cli("destination", "edit", "depot", "--retry-cap", "500ms"), 2, "at most the retry cap (500ms) is allowed")
    ok(cli("destination", "edit", "depot", "--retry-base", "2s", "--retry-cap", "2s"))


def test_destinations_on_one_host_are_told_apart_without_their_paths(cli: Cli) -> None:
    for name, path in (("a", "S3CR3T-1"), ("b", "S3CR3T-2"), ("c", "S3CR3T-1")):
        ok(cli("destination", "add", name, f"https://hooks.example/{path}"))
    listed = ok(cli("destination", "list"))
    assert "S3CR3T" not in listed.out + ok(cli("audit", "--json")).out
    a, b, c = (row["url"] for row in ok(cli("destination", "list", "--json")).json())
    assert (a == c, a == b) == (True, False)


def test_a_generated_admin_token_is_told_as_such(cli: Cli, tmp_path: Path) -> None:
    assert "HOOKYARD_ADMIN_TOKEN=(not set)\n" in ok(cli("config")).out
    (tmp_path / "admin.token").write_text("generated-token")
    assert "HOOKYARD_ADMIN_TOKEN=*** (generated)\n" in ok(cli("config")).out


def test_a_suspended_destination_says_what_to_do_next(cli: Cli, hand: Hand) -> None:
    hand.lane()
    hand.sql("UPDATE destinations SET state = 'suspended'")
    hand.posted()

    assert "suspended" in ok(cli("destination", "show", "warehouse")).out
    assert "nothing to replay" not in ok(cli("replay", "--partner", "shop", "--yes")).out
    resumed = ok(cli("destination", "resume", "warehouse"))
    assert "hookyard replay --destination warehouse" in resumed.err


def test_verify_none_beyond_loopback_has_to_be_said(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOKYARD_INGEST_BIND", "0.0.0.0:8080")
    refused(cli("partner", "add", "shop"), 2, "--verify none if anybody who can reach it may post")
    ok(cli("partner", "add", "shop", "--verify", "none"))
    ok(cli("partner", "add", "hub", "--verify", "github"))


def test_a_schema_that_is_missing_is_told_and_made(
    cli: Cli, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOKYARD_DATABASE_URL", empty_database_url)
    refused(cli("partner", "list"), 1, "run `hookyard migrate`")
    assert cli("doctor", "--json").code == 1
    ok(cli("migrate"))
    ok(cli("migrate"))
    assert ok(cli("partner", "list", "--json")).json() == []


def test_commands_without_a_database_end_soon_in_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOKYARD_DATABASE_URL", "postgresql://nobody:hush@127.0.0.1:1/none")
    began = time.monotonic()
    for argv in (("partner", "list"), ("parked",), ("replay", "--partner", "x", "--yes")):
        result = cli(*argv)
        refused(result, 1, "database")
        assert "hush" not in result.err
    assert time.monotonic() - began < 10


def test_the_wrong_master_key_is_told_by_its_fingerprint(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    ok(cli("destination", "add", "depot", URL))
    monkeypatch.setenv("HOOKYARD_MASTER_KEY", "b" * 43 + "=")
    refused(
        cli("destination", "show", "depot"), 1, "the list of headers of destination depot was sealed with master key"
    )
    (told,) = [f["message"] for f in cli("doctor", "--json").json()["findings"] if f["check"] == "secrets"]
    assert told.startswith("the URL of destination depot was sealed with master key")
    monkeypatch.delenv("HOOKYARD_MASTER_KEY")
    refused(cli("destination", "add", "other", URL), 1, "HOOKYARD_MASTER_KEY")
    ok(cli("partner", "add", "shop"))


def test_a_rotated_master_key_ends_with_a_resealing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    ok(cli("destination", "add", "depot", URL))
    new = "b" * 43 + "="
    monkeypatch.setenv("HOOKYARD_MASTER_KEY", f"{new},{KEY}")
    assert "3 need an old master key: run `hookyard reseal`" in cli("doctor").out
    assert "3 values are sealed anew with master key" in ok(cli("reseal")).out
    assert "nothing to do" in ok(cli("reseal")).out
    monkeypatch.setenv("HOOKYARD_MASTER_KEY", new)
    assert ok(cli("destination", "show", "depot", "--json")).json()["url"] == URL
    assert "3 sealed values open\n" in cli("doctor").out
    assert [row["action"] for row in ok(cli("audit", "--json")).json()] == ["reseal", "destination add"]


def test_the_audit_holds_what_was_given_and_nothing_else(cli: Cli) -> None:
    ok(cli("partner", "add", "shop", "--rate", "5/s"))
    ok(cli("destination", "add", "depot", URL, "--retry-factor", "2", "--timeout", "5s"))
    ok(cli("subscribe", "shop", "depot"))
    ok(cli("destination", "edit", "depot", "--rate", "none"))
    ((_, redacted),) = [(row["name"], row["url"]) for row in ok(cli("destination", "list", "--json")).json()]
    assert re.fullmatch(r"https://warehouse\.example/… #[0-9a-f]{8}", redacted)
    shown = [" ".join(line.split()[2:]) for line in ok(cli("audit")).out.splitlines()[1:]]
    assert shown == [
        "destination edit depot rate=none",
        "subscribe shop > depot from=1 ordering=partner",
        f'destination add depot url="{redacted}" timeout=5s retry_factor=2',
        "partner add shop rate=5/s",
    ]


def test_doctor_finds_what_is_wrong(cli: Cli, hand: Hand) -> None:
    hand.lane()
    ids = hand.posted(2)
    healthy = cli("doctor", "--json").json()
    hand.claim(ids[0])
    hand.sql("UPDATE workers SET fenced = true")
    hand.sql("UPDATE destinations SET state = 'suspended'")

    sick = cli("doctor", "--json")

    wrong_before = {finding["check"] for finding in healthy["findings"] if not finding["ok"]}
    wrong_after = {finding["check"] for finding in sick.json()["findings"] if not finding["ok"]}
    assert wrong_before == {"durability"}  # the tests' servers run without fsync
    assert wrong_after == {"durability", "workers", "leases", "in flight", "parking"}
    assert sick.code == 1
    assert "WRONG leases" in cli("doctor").out


def test_a_listing_starts_fast_and_survives_a_reader_that_leaves(hand: Hand, database_url: str, tmp_path: Path) -> None:
    hand.partner()
    before = children_cpu_seconds()
    assert b"shop" in shell(["partner", "list"], database_url, tmp_path).stdout
    assert children_cpu_seconds() - before < 1.5  # about 0.4 s on an idle machine; more on one that is shared
    command = f"{sys.executable} -m ops.cli partner list --json | true"
    piped = subprocess.run(
        ["bash", "-c", command], env=environment(database_url, tmp_path), cwd=ROOT, capture_output=True, check=False
    )
    assert piped.stderr == b""


@pytest.mark.parametrize("argv", ["partner list", "event list --json", "config", "--help"])
def test_output_that_cannot_be_written_is_told_in_one_line(
    hand: Hand, database_url: str, tmp_path: Path, argv: str
) -> None:
    hand.partner()
    command = f"{sys.executable} -m ops.cli {argv} > /dev/full"
    full = subprocess.run(
        ["bash", "-c", command], env=environment(database_url, tmp_path), cwd=ROOT, capture_output=True, check=False
    )
    assert full.returncode == 1
    assert full.stderr == b"hookyard: the output cannot be written: No space left on device\n"


def children_cpu_seconds() -> float:
    """Of the processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def shell(argv: list[str], database_url: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """`hookyard …` as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli", *argv],
        env=environment(database_url, folder),
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_token_is_added_shown_once_listed_and_revoked(cli: Cli) -> None:
    added = ok(cli("token", "add", "ada", "--role", "operator", "--expires", "90d", "--json")).json()
    assert added["token"].startswith("hky_")
    assert (added["name"], added["role"], added["expired"]) == ("ada", "operator", False)
    refused(cli("token", "add", "ada", "--role", "viewer"), 1, "there is a token 'ada' already")
    refused(cli("token", "add", "bob", "--role", "root"), 2, "root")

    assert added["token"] not in ok(cli("token", "list", "--json")).out
    assert ok(cli("token", "list", "--json")).json() == [{k: v for k, v in added.items() if k != "token"}]

    ok(cli("token", "revoke", "ada"))
    refused(cli("token", "revoke", "ada"), 1, "no token 'ada'")
    assert [row["action"] for row in ok(cli("audit", "--json")).json()] == ["token revoke", "token add"]
