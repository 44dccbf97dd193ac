"""What the command line makes of words and numbers, without a database."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer

from domain.lifecycle import ParkReason
from domain.sources import parse_source, read
from domain.verification import VERIFIED, Posting, Scheme, chosen_options, schemes
from domain.version import VERSION
from ops.cli import options, output, run, send
from ops.cli.audit import _details
from ops.cli.backlog import Slopes
from ops.cli.errors import verdict
from ops.settings import Bind
from storage.errors import Conflict, Invalid
from storage.partners import Partner

URL = "https://hooks.example.com/in/shop"
NOW = datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)


def test_a_table_for_a_program_cuts_and_wraps_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    output.print_table(("NAME", "N", "AT"), [(long, 1, NOW), ("b", None, None)], "none")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == [long, "1", "2026-01-31T12:00:00.250Z"]
    assert lines[2].split() == ["b", "-", "-"]
    assert not any(line.endswith(" ") for line in lines)


def test_a_listing_of_any_length_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    for rows in ([], [{"n": 1}], [{"n": 1}, {"n": "ä"}]):
        output.print_json_rows(iter(rows))
        assert json.loads(capsys.readouterr().out) == rows


def test_json_moves_no_cursor_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    value: Any = {"type": "\x9b31m\x85\x7f\x1b[0m\u202e\u2028\ud800\U000e0001 ünïcode 日本 🎉 \\u009b"}
    for rows in (False, True):
        output.print_json_rows([value]) if rows else output.print_json(value)
        text = capsys.readouterr().out
        assert json.loads(text) == ([value] if rows else value)
        assert all(c.isprintable() or c == "\n" for c in text)
        assert "ünïcode 日本 🎉" in text


@pytest.mark.parametrize("terminal", [False, True])
def test_text_from_outside_moves_no_cursor_and_is_no_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    output.print_table(("ERROR",), [("\x1b[31mred[/bold]\r\n",)], "none")
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert "[/bold]" in told


def test_a_table_on_a_terminal_is_folded_into_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    columns = ("NAME", "N", "AT", "ERROR")
    output.print_table(columns, [("x" * 20, 1, NOW, "y" * 60)], "none", spare=("AT", "N"), flow="ERROR")
    told = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()
    assert told[0].split() == ["NAME", "ERROR"]
    assert ("x" * 20 in told[1], "".join(told).count("y")) == (True, 60)
    assert max(map(len, told)) <= 20 + output.GAP + output.FLOW_WIDTH

    output.print_table(("NAME", "N", "AT"), [("x" * 20, 1, NOW)], "none", spare=("AT",), flow="ERROR")
    assert "01-31 12:00:00" in capsys.readouterr().out  # shorter first: it fits


def test_an_id_is_broken_by_no_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output.print_table(("EVENT", "STATE"), [("evt_" + "x" * 60, "parked")], "none", spare=("STATE",))
    assert "evt_" + "x" * 60 in capsys.readouterr().out


def test_a_list_that_is_one_of_many_is_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json([{"a": 1}, {"b": 2}], on_one_line=True)
    assert capsys.readouterr().out == '[{"a": 1}, {"b": 2}]\n'


@pytest.mark.parametrize(
    ("seconds", "told"), [(None, "-"), (4.4, "4s"), (119, "119s"), (180, "3m"), (7300, "2h"), (4e5, "5d")]
)
def test_an_age_is_told_in_one_unit(seconds: float | None, told: str) -> None:
    assert output.age(seconds) == told


def test_a_slope_is_measured_from_what_was_seen_before() -> None:
    slopes = Slopes()
    assert slopes.measure(0.0, {"a": 10}) == {}
    assert slopes.measure(30.0, {"a": 20, "new": 5}) == {"a": 20.0}


def test_a_secret_is_read_from_a_file_without_its_line_end(tmp_path: Path) -> None:
    (tmp_path / "s").write_text(" s3cret \n")
    assert options.read_secret(f"@{tmp_path / 's'}") == " s3cret "
    assert options.read_secret("plain") == "plain"
    with pytest.raises(typer.BadParameter, match="cannot be read"):
        options.read_secret("@/nowhere/at/all")


def test_a_rate_of_none_lifts_the_limit() -> None:
    assert options.optional_rate(options.rate_or_none("none")) is None
    assert options.optional_rate(options.rate_or_none("2/s")) == 2.0


def test_errors_are_one_line_whatever_they_hold() -> None:
    assert verdict(Conflict("it is\ntaken")) == ("hookyard: it is taken", 1)
    assert verdict(typer.Abort()) == ("hookyard: nothing was done", 1)
    assert verdict(Invalid("out of range")) == ("hookyard: out of range", 2)
    assert verdict(RuntimeError("a defect")) is None


def test_help_of_every_command_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    commands = [
        "up", "partner add", "partner edit", "destination add", "destination edit", "subscribe", "unsubscribe", "send",
        "event list", "event show", "event body", "parked", "replay", "discard", "backfill", "backlog", "audit",
        "migrate", "reseal", "ingest", "worker", "jobs", "ops", "config", "doctor",
    ]  # fmt: skip
    for command in commands:
        assert run([*command.split(), "--help"]) == 0
        assert f"Usage: hookyard {command}" in capsys.readouterr().out


def test_the_help_names_every_scheme(capsys: pytest.CaptureFixture[str]) -> None:
    run(["partner", "add", "--help"])
    told = "".join(capsys.readouterr().out.split())  # a long name may be broken at its hyphen
    assert all(name in told for name in schemes())


def test_the_help_names_every_reason(capsys: pytest.CaptureFixture[str]) -> None:
    run(["parked", "--help"])
    told = capsys.readouterr().out
    assert all(reason.value in told for reason in ParkReason)


def test_an_event_is_posted_to_ingest_and_its_refusal_told(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[httpx.Request] = []

    def ingest(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if request.url.path == "/in/shop":
            return httpx.Response(202, json={"event": "evt_1", "sequence": 1, "duplicate": False})
        return httpx.Response(404, json={"detail": "no such partner"})

    real = httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **how: real(transport=httpx.MockTransport(ingest), **how))

    answer = send._post("http://127.0.0.1:8080", "/in/shop", b"\x00", [("x-a", "1")])

    assert answer["event"] == "evt_1"
    assert (seen[0].content, seen[0].headers["x-a"]) == (b"\x00", "1")
    with pytest.raises(send.NotAccepted, match="404 no such partner"):
        send._post("http://127.0.0.1:8080", "/in/nobody", b"", [])


def test_ingest_that_listens_everywhere_is_reached_on_this_machine() -> None:
    assert send._base(Bind("0.0.0.0", 1)) == "http://127.0.0.1:1"
    assert send._base(Bind("::", 1)) == "http://[::1]:1"
    assert send._base(Bind("localhost", 1)) == "http://localhost:1"


def test_a_sample_has_the_type_that_was_asked_for_and_the_same_bytes_for_the_same_id() -> None:
    body = send._sample(sender(), "order.paid", "msg_1")
    assert json.loads(body)["type"] == "order.paid"
    assert send._sample(sender(), "order.paid", "msg_1") == body
    assert send._sample(sender(), "order.paid", "msg_2") != body


@pytest.mark.parametrize(
    "scheme",
    [scheme for name, scheme in schemes().items() if name not in ("discord", "sendgrid", "adyen-payments")],
    ids=lambda scheme: scheme.name,
)
def test_what_is_sent_as_a_partner_is_what_its_scheme_verifies_and_its_sources_read(scheme: Scheme) -> None:
    wanted = {name: URL if name == "url" else "x-proof" for name, text in scheme.options.items() if text is None}
    options = chosen_options(scheme, wanted)
    partner = sender(verify=scheme.name, verify_options=options, dedupe=scheme.dedupe, type=scheme.type)
    secret = scheme.generate_secret(bytes(32)) if scheme.needs_secret else ""

    body = send._sample(partner, "order.paid", "msg_1")
    signed = send._signed(partner, secret, body, "msg_1", "order.paid")

    headers = [(name.lower().encode(), value.encode()) for name, value in signed]
    assert scheme.verify(Posting(headers, body, (secret,), options, time.time())) is VERIFIED
    for source, text in ((partner.dedupe, "msg_1"), (partner.type, "order.paid")):
        assert read(parse_source(source), headers, body) == (None if source == "none" else text)


def sender(**options: object) -> Partner:
    known: dict[str, object] = {"verify": "none", "dedupe": "header:webhook-id", "type": "json:/type"}
    return Partner(**dict.fromkeys(Partner.__slots__) | {"name": "shop"} | known | options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "type_", "identity", "is_sample", "told"),
    [
        ({}, "a", "1", True, ""),
        ({}, "a", None, False, r"from the body \(json:/type\)"),
        ({"type": "header:x-type"}, "a", "1", False, ""),
        ({"type": "none"}, "a", None, True, "from nowhere"),
        ({"type": "json:/event/kind", "dedupe": "json:/id"}, "a", "1", True, ""),
        ({"type": "json:/kind"}, "a", None, False, "json:/kind"),
        ({"dedupe": "json:/id"}, None, "1", True, ""),
        ({"dedupe": "json:/id"}, None, "1", False, "json:/id"),
        ({"dedupe": "json:/id", "verify": "standard"}, None, "1", False, ""),
        ({"dedupe": "json:/id", "verify": "stripe"}, None, "1", False, "json:/id"),
    ],
)
def test_a_type_or_an_id_that_has_no_place_is_refused(
    options: dict[str, object], type_: str | None, identity: str | None, is_sample: bool, told: str
) -> None:
    with pytest.raises(typer.BadParameter, match=told) if told else contextlib.nullcontext():
        send._check_places(sender(**options), type_, identity, is_sample=is_sample)


def test_no_number_is_refused_in_our_own_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["event", "list", "--limit", "abc"]) == 2
    assert run(["destination", "add", "x", "http://h/", "--retry-factor", "x"]) == 2
    integer, number = capsys.readouterr().err.splitlines()
    assert "'--limit': 'abc' is no whole number (see hookyard event list --help)" in integer
    assert "'--retry-factor': 'x' is no number (see" in number


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"hookyard {VERSION}\n"
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION


def test_the_audit_shows_details_as_people_write_them() -> None:
    details = {"retry_factor": 2, "rate": "0.5/s", "park_on": [422, 451], "headers": [], "why": "too old"}
    assert _details(details) == 'retry_factor=2 rate=0.5/s park_on=422,451 headers=none why="too old"'


def test_what_no_times_are_is_refused() -> None:
    assert abs(options.moment("1h") - (datetime.now(UTC) - timedelta(hours=1))) < timedelta(minutes=1)
    with pytest.raises(ValueError, match="no time"):
        options.moment("yesterday")
