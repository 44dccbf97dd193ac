"""Master keys come and go: what is sealed is told apart by its key, and sealed anew on request."""

from __future__ import annotations

from datetime import timedelta

import pytest

from storage import destinations, partners
from storage.configuration import Configuration
from storage.sealed import Survey, reseal, survey
from storage.secrets import CannotOpen, Vault
from tests.by_hand import ACTOR, Hand

OLD, NEW = b"k" * 32, b"n" * 32  # the first is the hand's


def seen(hand: Hand, *keys: bytes) -> Survey:
    with hand.store.begin() as connection:
        return survey(connection, Vault(keys))


@pytest.fixture
def furnished(hand: Hand) -> Hand:
    """Five sealed values: two secrets of a partner, and URL, headers and secret of a destination."""
    hand.partner("acme", verify="standard")
    hand.destination("crm", headers=["x-key: hush"])
    with hand.store.begin() as connection:
        partners.rotate_secret(connection, hand.vault, "acme", None, timedelta(days=1), actor=ACTOR)
    return hand


def test_what_the_keys_at_hand_do_not_open_is_named(furnished: Hand) -> None:
    assert seen(furnished, OLD) == Survey(5, 0, ())
    assert seen(furnished, NEW, OLD) == Survey(5, 5, ())
    lost = seen(furnished, NEW)
    assert (lost.opened, len(lost.closed)) == (0, 5)
    for meant in ("the secret of partner acme", "the URL of destination crm", "the list of headers of destination crm"):
        assert any(text.startswith(f"{meant} was sealed with master key ") for text in lost.closed)


def test_after_resealing_the_old_key_may_go(furnished: Hand) -> None:
    before = furnished.rows("SELECT config_version FROM installation")
    assert reseal(furnished.store, Vault([NEW, OLD]), actor=ACTOR) == 5
    assert reseal(furnished.store, Vault([NEW, OLD]), actor=ACTOR) == 0
    assert seen(furnished, NEW) == Survey(5, 0, ())
    assert furnished.rows("SELECT config_version FROM installation") != before
    with furnished.store.begin() as connection:
        found = destinations.show(connection, Vault([NEW]), "crm")
    assert found.header_names == ("x-key",)
    ((action, details),) = furnished.rows("SELECT action, details FROM audit WHERE action = 'reseal'")
    assert (action, details["values"]) == ("reseal", 5)


def test_where_one_value_does_not_open_nothing_is_resealed(furnished: Hand) -> None:
    with furnished.store.begin() as connection:
        destinations.rotate_secret(connection, Vault([NEW]), "crm", None, timedelta(days=1), actor=ACTOR)
    with pytest.raises(CannotOpen, match="the secret of destination crm"):
        reseal(furnished.store, Vault([b"3" * 32, OLD]), actor=ACTOR)
    assert seen(furnished, OLD).opened == 5
    assert furnished.rows("SELECT FROM audit WHERE action = 'reseal'") == []


async def test_what_was_removed_needs_no_key_any_more(furnished: Hand, database_url: str) -> None:
    with furnished.store.begin() as connection:
        partners.remove(connection, "acme", actor=ACTOR)
    destinations.remove(furnished.store, "crm", actor=ACTOR)

    assert seen(furnished, NEW) == Survey(0, 0, ())
    configuration = Configuration(database_url, Vault([NEW]))
    await configuration.start()
    assert [destination.name for destination in configuration.snapshot.destinations_by_id.values()] == ["crm"]
    await configuration.close()
