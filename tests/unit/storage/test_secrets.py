"""Secrets at rest: sealed for one purpose, opened by any key that is known."""

from __future__ import annotations

import pytest

from storage.secrets import DESTINATION_SECRET, DESTINATION_URL, PARTNER_SECRET, CannotOpen, Vault, fingerprint

OLD, NEW = b"o" * 32, b"n" * 32


def test_what_is_sealed_opens_again_and_is_never_sealed_the_same_twice() -> None:
    vault = Vault([OLD])
    first, second = (vault.seal(b"hush", DESTINATION_SECRET) for _ in range(2))
    assert first != second
    assert b"hush" not in first
    assert vault.open(first, DESTINATION_SECRET, "crm") == b"hush"


def test_after_a_rotation_the_first_key_seals_and_every_key_opens() -> None:
    old = Vault([OLD]).seal(b"hush", DESTINATION_SECRET)
    both = Vault([NEW, OLD])
    assert both.open(old, DESTINATION_SECRET, "crm") == b"hush"
    assert not both.is_current(old)
    assert both.is_current(both.seal(b"hush", DESTINATION_SECRET))


def test_what_needs_a_missing_key_is_named_and_the_key_by_its_fingerprint() -> None:
    sealed = Vault([OLD]).seal(b"hush", PARTNER_SECRET)
    told = f"the secret of partner acme was sealed with master key {fingerprint(OLD).hex()}, which is not in"
    with pytest.raises(CannotOpen, match=told):
        Vault([NEW]).open(sealed, PARTNER_SECRET, "acme")


def test_a_sealed_value_opens_only_in_its_own_place() -> None:
    sealed = Vault([OLD]).seal(b"hush", DESTINATION_SECRET)
    with pytest.raises(CannotOpen, match="the URL of destination crm is damaged or stands in the wrong place"):
        Vault([OLD]).open(sealed, DESTINATION_URL, "crm")


@pytest.mark.parametrize("damage", [b"", b"\x01short", b"\x02" + b"x" * 60])
def test_what_was_never_sealed_does_not_open(damage: bytes) -> None:
    with pytest.raises(CannotOpen, match="no sealed value"):
        Vault([OLD]).open(damage, DESTINATION_SECRET, "crm")


def test_every_damaged_byte_is_noticed() -> None:
    vault = Vault([OLD])
    sealed = vault.seal(b"hush", DESTINATION_SECRET)
    for index in range(len(sealed)):
        broken = sealed[:index] + bytes([sealed[index] ^ 1]) + sealed[index + 1 :]
        with pytest.raises(CannotOpen):
            vault.open(broken, DESTINATION_SECRET, "crm")


def test_configured_headers_come_back_in_order_with_repeats() -> None:
    vault = Vault([OLD])
    headers = (("x-a", "1"), ("x-b", "ä"), ("x-a", "2"))
    assert vault.open_headers(vault.seal_headers(headers), "crm") == headers


@pytest.mark.parametrize("keys", [[], [b"short"], [OLD, b"x" * 33]])
def test_a_vault_takes_keys_of_32_bytes_only(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Vault(keys)
