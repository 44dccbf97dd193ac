"""Everything that can be done in the dashboard, clicked in a real browser; its effect is looked for in the database."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.town import Town, eventually

STATE = "SELECT state FROM {} WHERE name = :name AND removed_at IS NULL"


def agree(page: Page) -> None:
    """Yes, to what the page asks."""
    page.locator("#ask").get_by_role("button", name="Do it").click()


def was_audited(town: Town, action: str, subject: str) -> bool:
    query = "SELECT actor FROM audit WHERE action = :action AND subject = :subject ORDER BY id DESC LIMIT 1"
    return [row[0] for row in town.rows(query, action=action, subject=subject)] == ["admin"]


def test_a_session_begins_with_the_login_and_ends_with_the_logout(opened: Open, town: Town) -> None:
    before = town.one("SELECT count(*) FROM sessions")
    page = opened()
    assert town.one("SELECT count(*) FROM sessions") == before + 1

    page.get_by_role("button", name="Log out").click()

    page.wait_for_url("**/login")
    assert town.one("SELECT count(*) FROM sessions") == before
    page.goto("/events")
    expect(page).to_have_url(f"{town.url}/login?next=/events")


def test_a_partner_is_paused_and_resumed(opened: Open, town: Town) -> None:
    page = opened("/partners/printer")

    page.get_by_role("button", name="Pause").click()
    agree(page)
    expect(page.locator("#state")).to_have_text("paused")
    assert town.one(STATE.format("partners"), name="printer") == "paused"

    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#state")).to_have_text("active")
    assert town.one(STATE.format("partners"), name="printer") == "active"


def test_what_is_not_agreed_to_is_not_done(opened: Open, town: Town) -> None:
    page = opened("/partners/printer")

    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Leave it").click()

    expect(page.locator("#ask")).to_be_hidden()
    assert town.one(STATE.format("partners"), name="printer") == "active"


def test_a_destination_is_paused_and_resumed(opened: Open, town: Town) -> None:
    page = opened("/destinations/warehouse")

    page.get_by_role("button", name="Pause").click()
    agree(page)
    expect(page.locator("#state")).to_have_text("paused")
    assert town.one(STATE.format("destinations"), name="warehouse") == "paused"

    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#state")).to_have_text("active")
    assert town.one(STATE.format("destinations"), name="warehouse") == "active"


def test_the_secret_is_rotated_and_shown_once(opened: Open, town: Town) -> None:
    count = """SELECT count(*) FROM destination_secrets s JOIN destinations d ON d.id = s.destination_id
               WHERE d.name = 'warehouse'"""
    before = town.one(count)
    page = opened("/destinations/warehouse")

    page.get_by_role("button", name="Rotate secret").click()
    agree(page)

    expect(page.locator("#secret")).to_contain_text("whsec_")
    page.get_by_role("button", name="I have it").click()
    assert town.one(count) == before + 1
    assert was_audited(town, "destination rotate-secret", "warehouse")
    page.reload()
    assert "whsec_" not in page.content()


def test_a_test_event_is_sent(opened: Open, town: Town) -> None:
    page = opened("/destinations/warehouse")

    page.get_by_label("As partner").select_option("printer")
    page.get_by_label("Type").fill("test.from_the_page")
    page.get_by_role("button", name="Send", exact=True).click()

    expect(page.locator("#test-event output")).to_contain_text("Accepted as sequence")
    assert town.one("SELECT count(*) FROM events WHERE type = 'test.from_the_page'") == 1


def test_the_breaker_is_reset(opened: Open, town: Town) -> None:
    town.answers["/ledger"] = (200, "open again")
    page = opened("/destinations/ledger")
    expect(page.locator("#figures")).to_contain_text("open")

    page.get_by_role("button", name="Reset breaker").click()
    agree(page)

    expect(page.locator("#figures .figure").first).to_contain_text("closed")
    eventually(lambda: town.one("SELECT waiting FROM lanes l JOIN partners p ON p.id = l.partner_id"
                                " WHERE p.name = 'bank'") == 0)  # fmt: skip
    assert was_audited(town, "destination reset-breaker", "ledger")


def test_one_delivery_is_sent_again_from_its_event(opened: Open, town: Town) -> None:
    event = town.post("printer", "page.printed")
    eventually(lambda: town.state_of(event, "warehouse") == "delivered")
    page = opened(f"/events/{event}")

    page.get_by_role("button", name="Send again").click()
    expect(page.locator("#question")).to_have_text("Replay 1 delivery?")
    agree(page)

    page.wait_for_url("**/replays/rpl_*")
    eventually(lambda: len(town.ask("GET", f"/events/{event}")["deliveries"][0]["attempts"]) == 2)


@pytest.fixture
def parked(town: Town) -> list[str]:
    """Events of which the mailer took none."""
    town.answers["/mailer"] = (422, "no")
    events = [town.post("shop", "order.parked", n=n) for n in range(3)]
    eventually(lambda: all(town.state_of(event, "mailer") == "parked" for event in events))
    return events


def test_chosen_parked_deliveries_are_counted_and_replayed(opened: Open, town: Town, parked: list[str]) -> None:
    town.answers["/mailer"] = (200, "yes")
    page = opened("/parked?partner=shop&reason=rejected")

    for event in parked[:2]:
        page.locator(f"[data-choose={event}]").check()
    expect(page.locator("#choice")).to_have_text("2 chosen deliveries")
    page.get_by_role("button", name="Count").click()
    expect(page.locator("#again output")).to_have_text("2 deliveries")
    assert town.state_of(parked[0], "mailer") == "parked"
    page.locator("#again").get_by_role("button", name="Replay").click()
    agree(page)

    page.wait_for_url("**/replays/rpl_*")
    expect(page.locator("h1")).to_contain_text("finished")
    eventually(lambda: [town.state_of(event, "mailer") for event in parked] == ["delivered", "delivered", "parked"])


def test_a_chosen_parked_delivery_is_discarded_with_a_reason(opened: Open, town: Town, parked: list[str]) -> None:
    page = opened("/parked?destination=mailer")

    page.locator(f"[data-choose={parked[2]}]").check()
    page.get_by_label("Why").fill("sent by hand")
    page.get_by_role("button", name="Discard").click()
    agree(page)

    page.wait_for_url("**/replays/rpl_*")
    assert [town.state_of(event, "mailer") for event in parked] == ["parked", "parked", "discarded"]
    assert town.one("SELECT why FROM replays WHERE kind = 'discard' ORDER BY id DESC LIMIT 1") == "sent by hand"


def test_all_that_pass_the_filter_are_replayed_when_none_is_chosen(opened: Open, town: Town, parked: list[str]) -> None:
    town.answers["/mailer"] = (200, "yes")
    page = opened("/parked?destination=mailer")

    page.locator("#again").get_by_role("button", name="Replay").click()
    agree(page)

    page.wait_for_url("**/replays/rpl_*")
    eventually(lambda: town.one("SELECT count(*) FROM parked") == 0)


def test_a_slow_replay_is_paused_resumed_and_cancelled(opened: Open, town: Town) -> None:
    for n in range(30):
        town.post("shop", "order.many", n=n)
    eventually(lambda: town.one("SELECT sum(waiting) FROM lanes") == 0)
    page = opened("/replays")
    form = page.locator("#new-replay")

    form.get_by_label("What was").select_option("delivered")
    form.get_by_label("Destination").select_option("warehouse")
    form.get_by_label("At most").fill("1/s")
    form.get_by_role("button", name="Replay").click()
    agree(page)
    page.wait_for_url("**/replays/rpl_*")
    row = f"SELECT state FROM replays WHERE id = {page.url.rpartition('_')[2]}"

    page.get_by_role("button", name="Pause").click()
    expect(page.locator("h1")).to_contain_text("paused")
    assert town.one(row) == "paused"
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("h1")).to_contain_text("running")
    page.goto("/replays")
    page.get_by_role("button", name="Cancel").first.click()
    agree(page)
    expect(page.locator("#rows tbody tr").first).to_contain_text("cancelled")
    assert town.one(row) == "cancelled"


def test_stored_events_are_backfilled_to_a_new_destination(opened: Open, town: Town) -> None:
    town.post("printer", "page.printed")
    url = town.ask("GET", "/destinations/warehouse")["url"]
    town.ask("POST", "/destinations", name="archive", url=url)
    town.ask("PUT", "/subscriptions/printer/archive", order="partner")
    page = opened("/replays")
    form = page.locator("#new-backfill")

    form.get_by_label("Partner").select_option("printer")
    form.get_by_label("Destination").select_option("archive")
    form.get_by_role("button", name="Count").click()
    expect(form.locator("output")).to_contain_text("deliver")
    form.get_by_role("button", name="Backfill").click()
    agree(page)

    page.wait_for_url("**/replays/rpl_*")
    expect(page.locator("h1")).to_contain_text("Backfill")
    expect(page.locator("h1")).to_contain_text("finished")
    count = "SELECT count(*) FROM deliveries d JOIN destinations n ON n.id = d.destination_id WHERE n.name = 'archive'"
    assert town.one(count) >= 1


def test_the_audit_is_filtered(opened: Open, town: Town) -> None:
    page = opened("/system")

    page.get_by_label("About").fill("ledger")
    page.get_by_label("Action").fill("destination add")
    page.get_by_role("button", name="Filter").click()

    expect(page.locator("section[aria-labelledby=audit] tbody tr")).to_have_count(1)
    expect(page.locator("section[aria-labelledby=audit] tbody tr")).to_contain_text("ledger")


def test_a_viewer_sees_everything_and_is_offered_nothing_that_changes_it(opened: Open, town: Town) -> None:
    token = town.ask("POST", "/tokens", name="a-viewer", role="viewer")["token"]
    page = opened(token=token)

    for path in ("/partners/shop", "/destinations/ledger", "/parked", "/replays", "/system"):
        page.goto(path)
        expect(page.locator("h1")).to_be_visible()
        assert page.locator("[data-post], [data-api]").count() == 0, path


def test_a_refusal_is_told_in_the_words_of_the_api(opened: Open, town: Town) -> None:
    page = opened("/replays")
    form = page.locator("#new-replay")

    form.get_by_label("At most").fill("many")
    form.get_by_role("button", name="Count").click()

    expect(page.locator("#told")).to_contain_text("rate")
