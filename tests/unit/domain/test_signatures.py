"""Signing as Standard Webhooks asks for it, against published signatures."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from domain.signatures import BadSecret, key_of, secret_of, sign

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
VECTORS = json.loads((Path(__file__).parents[2] / "data" / "standard_webhooks.json").read_text())["vectors"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: str(v["id"]))
def test_our_signature_is_the_published_one(vector: dict[str, Any]) -> None:
    body = base64.b64decode(vector["body_base64"])
    assert sign([vector["secret"]], vector["message_id"], vector["timestamp"], body) == vector["signature"]


def test_every_secret_of_a_rotation_signs_in_its_order() -> None:
    new = secret_of(bytes(range(32)))
    both = sign([new, SECRET], "evt_1", 1, b"x").split(" ")
    assert both == [sign([new], "evt_1", 1, b"x"), sign([SECRET], "evt_1", 1, b"x")]


def test_a_new_secret_holds_its_random_bytes() -> None:
    assert key_of(secret_of(bytes(range(32)))) == bytes(range(32))


@pytest.mark.parametrize("key", [b"", b"x" * 23, b"x" * 65])
def test_a_new_secret_is_neither_short_nor_long(key: bytes) -> None:
    with pytest.raises(BadSecret, match="24 to 64"):
        secret_of(key)


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_!!!!", "whsec_" + "A" * 8, "whsec_é", "whsec_" + "A" * 200, "hunter2"]
)
def test_a_secret_that_is_none_is_refused_without_being_quoted(secret: str) -> None:
    with pytest.raises(BadSecret) as refusal:
        key_of(secret)
    assert secret.removeprefix("whsec_") == "" or secret.removeprefix("whsec_") not in str(refusal.value)
