"""Partners, as people make, change and remove them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from storage import partners
from storage.errors import Conflict, Invalid, NotFound
from tests.by_hand import ACTOR, Hand
from tests.pipeline import Pipeline


def secrets_of(hand: Hand, name: str) -> list[str]:
    rows = hand.rows(
        "SELECT s.sealed FROM partner_secrets s JOIN partners p ON p.id = s.partner_id WHERE p.name = :name"
        " AND (s.expires_at IS NULL OR s.expires_at > now()) ORDER BY s.id DESC",
        name=name,
    )
    return [hand.vault.open_text(bytes(row[0]), b"partner-secret", "shop") for row in rows]


def test_a_partner_comes_with_its_own_log_and_the_defaults_of_its_scheme(hand: Hand) -> None:
    partner = hand.partner("shop", verify="github")

    assert (partner.dedupe, partner.type, partner.on_backlog_full) == (
        "header:X-GitHub-Delivery",
        "header:X-GitHub-Event",
        "accept",
    )
    assert hand.rows("SELECT last_seq FROM partner_heads JOIN partner_tails USING (partner_id)") == [(0,)]
    assert hand.audit() == [("partner add", "shop")]


def test_a_secret_that_is_not_given_is_made_once_and_stored_sealed(hand: Hand) -> None:
    with hand.store.begin() as connection:
        _, made = partners.add(connection, hand.vault, "shop", {"verify": "standard"}, actor=ACTOR)

    assert made is not None
    assert made.startswith("whsec_")
    assert secrets_of(hand, "shop") == [made]
    assert made not in str(hand.rows("SELECT encode(sealed, 'escape') FROM partner_secrets"))
    assert made not in str(hand.rows("SELECT details FROM audit"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"verify": "runes"}, "runes"),
        ({"max_backlog": 0}, "max backlog 0: 1 to"),
        ({"max_body": 1 << 40}, "max body"),
        ({"rate": 1e9}, "rate"),
        ({"dedupe": "cookie:a"}, "cookie:a"),
    ],
)
def test_a_partner_outside_the_allowed_is_refused_with_a_reason(
    hand: Hand, options: partners.Options, told: str
) -> None:
    with pytest.raises(Invalid, match=told), hand.store.begin() as connection:
        partners.add(connection, hand.vault, "shop", options, actor=ACTOR)
    assert hand.rows("SELECT id FROM partners") == []


def test_a_name_is_taken_until_its_partner_is_removed(hand: Hand) -> None:
    first = hand.partner("shop")
    with pytest.raises(Conflict, match="already"):
        hand.partner("shop")
    with hand.store.begin() as connection:
        partners.remove(connection, "shop", actor=ACTOR)

    second = hand.partner("shop")

    assert second.id > first.id
    assert second.shard == first.shard


def test_an_edit_changes_what_was_given_and_nothing_else(hand: Hand) -> None:
    before = hand.partner("shop", max_backlog=10, rate=2.5)

    with hand.store.begin() as connection:
        after, made = partners.edit(connection, None, "shop", {"max_backlog": 20}, actor=ACTOR)

    assert made is None
    assert (after.max_backlog, after.rate, after.created_at) == (20, 2.5, before.created_at)


def test_another_scheme_brings_its_own_secret_and_sources_and_ends_the_old_secret(hand: Hand) -> None:
    hand.partner("shop", verify="standard", type="header:x-kind")

    with hand.store.begin() as connection:
        after, made = partners.edit(connection, hand.vault, "shop", {"verify": "github"}, actor=ACTOR)

    assert secrets_of(hand, "shop") == [made]
    assert after.dedupe == "header:X-GitHub-Delivery"
    assert after.type == "header:x-kind"


def test_after_a_rotation_both_secrets_are_valid_until_the_overlap_has_passed(hand: Hand) -> None:
    hand.partner("shop", verify="github")
    old = secrets_of(hand, "shop")

    with hand.store.begin() as connection:
        assert (
            partners.rotate_secret(connection, hand.vault, "shop", "newer one", timedelta(hours=1), actor=ACTOR) is None
        )
    assert secrets_of(hand, "shop") == ["newer one", *old]
    with hand.store.begin() as connection:
        partners.rotate_secret(connection, hand.vault, "shop", "the newest", timedelta(0), actor=ACTOR)
    assert secrets_of(hand, "shop") == ["the newest"]


def test_removing_a_partner_that_something_waits_for_must_be_meant(hand: Hand) -> None:
    hand.lane()
    hand.posted(2)
    hand.post()

    with pytest.raises(Conflict, match="3 deliveries"), hand.store.begin() as connection:
        partners.remove(connection, "shop", actor=ACTOR)
    with hand.store.begin() as connection:
        left = partners.remove(connection, "shop", even_if_waiting=True, actor=ACTOR)

    assert (left.deliveries, left.undispatched) == (2, 1)
    hand.dispatch()
    assert hand.states() == ["queued"] * 3
    assert hand.rows("SELECT from_seq, until_seq FROM subscriptions") == [(1, 4)]
    with pytest.raises(NotFound, match="no partner 'shop'"), hand.store.begin() as connection:
        partners.find(connection, "shop")


async def test_what_a_paused_partner_left_when_it_was_removed_is_delivered(pipeline: Pipeline) -> None:
    shop = pipeline.lane()
    with pipeline.store.begin() as connection:
        partners.set_state(connection, "shop", "paused", actor=ACTOR)
    pipeline.start_worker()
    await pipeline.post(shop, 2)
    await pipeline.until_sql("SELECT waiting FROM lanes", [(2,)])

    with pipeline.store.begin() as connection:
        partners.remove(connection, "shop", even_if_waiting=True, actor=ACTOR)
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 2]
