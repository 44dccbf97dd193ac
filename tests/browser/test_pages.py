"""The dashboard in a real browser: what it shows, that it stays fresh, and that nothing from outside runs in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.town import HOSTILE, Town, eventually

PICTURES = Path(__file__).parents[2] / "docs" / "screenshots"
PAGES = (
    "/",
    "/partners",
    "/partners/bank",
    "/destinations",
    "/destinations/ledger",
    "/events",
    "/parked",
    "/replays",
    "/system",
    "/doctor",
)


def test_the_overview_names_the_worst_partner_first_and_why_it_waits(opened: Open) -> None:
    page = opened()

    first = page.locator("#rows tbody tr").first
    expect(first).to_contain_text("bank")
    expect(first).to_contain_text("breaker open, probe due in")
    expect(first.locator("[data-spark] canvas")).to_be_visible()
    expect(page.locator(".chart canvas").first).to_be_visible()


def test_the_overview_is_fresh_without_being_loaded_again(opened: Open, town: Town) -> None:
    page = opened()
    page.evaluate("window.loadedOnce = true")
    row = page.locator("#row-bank td[data-label=Backlog]")
    before = int(row.inner_text())

    town.post("bank")

    expect(row).to_have_text(str(before + 1))
    assert page.evaluate("window.loadedOnce")


def test_where_nothing_was_measured_it_says_no_data_and_not_zero(opened: Open, town: Town) -> None:
    town.ask("POST", "/partners", name="newcomer", verify="none")
    page = opened("/partners/newcomer")

    expect(page.locator(".chart", has_text="Refused, by reason")).to_contain_text("no data")
    page.goto("/")
    expect(page.locator("#spark-newcomer")).to_have_js_property("childElementCount", 0)


def test_what_comes_from_outside_is_shown_as_text_and_never_runs(opened: Open, town: Town) -> None:
    event = town.post("shop", HOSTILE, note=HOSTILE)
    eventually(lambda: town.state_of(event, "mailer") == "parked")
    page = opened()

    for path in (
        "/",
        "/events",
        f"/events/{event}",
        f"/events/{event}?view=text",
        f"/events/{event}?view=hex",
        "/parked",
    ):
        page.goto(path)
        expect(page.locator("h1")).to_be_visible()
        assert page.evaluate("window.hacked") is None, path
        assert page.locator("main img, main script").count() == 0, path
    page.goto(f"/events/{event}")
    expect(page.locator("pre.answer", has_text="<script>")).to_have_text(HOSTILE)
    expect(page.locator(".headers", has_text="x-sent-by")).to_contain_text(HOSTILE)
    page.goto(f"/events?partner={HOSTILE}")
    expect(page.locator("h1")).to_have_text("Not found")
    assert page.evaluate("window.hacked") is None


def test_an_event_is_found_by_id_by_dedupe_value_and_by_text_in_its_body(opened: Open, town: Town) -> None:
    event = town.post("shop", "order.found", needle="a needle in the hay")
    town.post("shop", "order.lost")
    page = opened("/events")

    page.get_by_role("textbox", name="Text in the body").fill("needle in the")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text(event)
    page.goto("/events?type=order.found&partner=shop&state=parked&since=1h")
    eventually(lambda: page.reload() and page.locator("tbody tr").count() == 1)
    page.get_by_label("Event id").first.fill(event)
    page.get_by_label("Event id").first.press("Enter")
    expect(page.locator("h1")).to_contain_text(event)


def test_long_lists_go_on_where_the_page_ended(opened: Open, town: Town) -> None:
    for n in range(52):
        town.post("printer", "page.printed", n=n)
    page = opened("/events?partner=printer")
    newest = page.locator("tbody tr").first.inner_text()

    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("link", name="More").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name="Newest").click()
    assert page.locator("tbody tr").first.inner_text() == newest


def test_a_body_is_shown_as_json_text_and_hex_and_downloaded_as_it_is_stored(opened: Open, town: Town) -> None:
    event = town.post("shop", "order.paid", exact=1.0)
    stored = bytes(town.one("SELECT body FROM events ORDER BY received_at DESC LIMIT 1"))
    page = opened(f"/events/{event}")

    expect(page.locator("pre.body")).to_contain_text('"exact": 1.0')
    page.get_by_role("link", name="Hex").click()
    expect(page.locator("pre.body")).to_contain_text("00000000  7b 0a")
    page.get_by_role("link", name="Text", exact=True).click()
    assert page.locator("pre.body").inner_text() == stored.decode()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert Path(download.value.path()).read_bytes() == stored


@pytest.mark.parametrize("path", PAGES)
def test_every_page_fits_a_phone(opened: Open, path: str) -> None:
    page = opened(path, viewport={"width": 390, "height": 844})

    expect(page.locator("h1")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_every_page_can_be_used_by_keyboard(opened: Open) -> None:
    page = opened()

    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    for path in PAGES:
        page.goto(path)
        assert unnamed(page) == [], path
    page.locator("nav a").first.focus()
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def unnamed(page: Page) -> list[str]:
    """What can be focused and has no name for who hears the page."""
    found: list[str] = page.evaluate(
        """[...document.querySelectorAll("button, input:not([type=hidden]), select, a")]
        .filter((e) => !(e.innerText || e.labels?.length || e.ariaLabel)).map((e) => e.outerHTML)"""
    )
    return found


@pytest.mark.skipif("PICTURES" not in os.environ, reason="PICTURES=1 takes the screenshots of docs/screenshots anew")
def test_pictures_are_taken(opened: Open, town: Town) -> None:
    event = town.ask("GET", "/events?partner=shop&type=order.paid")["items"][-1]["id"]
    shots: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
        ("overview", "/", "[data-spark=bank] canvas", {"color_scheme": "light"}),
        ("overview-dark", "/", "[data-spark=bank] canvas", {"color_scheme": "dark"}),
        ("destination-dark", "/destinations/ledger", ".chart canvas", {"color_scheme": "dark"}),
        ("event", f"/events/{event}", "pre.body", {}),
        ("phone", "/", "[data-spark=bank] canvas", {"viewport": {"width": 390, "height": 844}}),
    )
    for name, path, there, options in shots:
        page = opened(path, **options)
        expect(page.locator(there).first).to_be_visible()
        if path == "/":
            expect(page.locator("#figures")).not_to_contain_text("no data")
        page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")
