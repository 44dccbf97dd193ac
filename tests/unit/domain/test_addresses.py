"""Which addresses may be called."""

import json
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from domain.addresses import Verdict, judge, networks

CASES = json.loads((Path(__file__).parents[2] / "data" / "addresses.json").read_text())["addresses"]
LOOPBACK = networks("127.0.0.0/8, ::1/128")


@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c["address"]))
def test_an_address_is_called_only_if_it_is_public(case: dict[str, Any]) -> None:
    expected = Verdict.FORBIDDEN if case["blocked"] else Verdict.PUBLIC
    assert judge(ip_address(case["address"])) is expected


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_an_allowed_network_overrides_the_rules(address: str) -> None:
    assert judge(ip_address(address), LOOPBACK) is Verdict.ALLOWED


@pytest.mark.parametrize("address", ["10.0.0.1", "169.254.169.254", "64:ff9b::7f00:1", "::127.0.0.1", "fe80::1%eth0"])
def test_allowing_loopback_allows_nothing_else(address: str) -> None:
    assert judge(ip_address(address), LOOPBACK) is Verdict.FORBIDDEN


def test_an_allowed_network_may_be_written_with_host_bits() -> None:
    assert judge(ip_address("10.1.2.3"), networks("10.1.2.3/8")) is Verdict.ALLOWED
