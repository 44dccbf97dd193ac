"""Adyen: platform webhooks with a signature in a header, and payment notifications with one inside each item.

The latter covers eight fields of an item and nothing else: whoever sees a notification may change the rest of it.
"""

import base64
import hmac
import json
from typing import Any

from domain.sources import MAX_JSON
from domain.verification.mac import Mac, Recipe
from domain.verification.scheme import MIN_SECRET, VERIFIED, Draft, Posting, Reason, Scheme, Verdict, check_text

COVERED = (
    "pspReference", "originalReference", "merchantAccountCode", "merchantReference", "value", "currency", "eventCode",
    "success",
)  # fmt: skip
IN_AMOUNT = ("value", "currency")
MAX_ITEMS = 100


class Adyen(Mac):
    """Verifies and signs as Adyen does for platforms and management."""

    name = "adyen"
    summary = "Adyen, webhooks with an hmacsignature header"
    takes = "the HMAC key, hexadecimal digits"
    recipe = Recipe(header="hmacsignature", encoding="base64")
    dedupe = "none"
    type = "json:/type"

    def key(self, secret: str) -> bytes:
        """The bytes that the digits stand for."""
        return hex_key(secret)

    def check_secret(self, text: str) -> None:
        """Hexadecimal digits. Raises: ValueError."""
        check_hex(text)


class AdyenPayments(Scheme):
    """Verifies and signs as Adyen does for payments. Every item of a notification has to be proved."""

    name = "adyen-payments"
    summary = "Adyen payment notifications, hmacSignature in the body"
    takes = Adyen.takes
    dedupe = "none"
    type = "json:/notificationItems/0/NotificationRequestItem/eventCode"

    def check_secret(self, text: str) -> None:
        """Hexadecimal digits. Raises: ValueError."""
        check_hex(text)

    def verify(self, posting: Posting) -> Verdict:
        """Verified if each item's signature is of one of the secrets."""
        items = _items(posting.body)
        if not items:
            return Reason.MALFORMED
        keys = [key for secret in posting.secrets if (key := hex_key(secret))]
        for item in items:
            given = _said(item, "additionalData", "hmacSignature").encode("utf-8", "surrogatepass")
            if not given:
                return Reason.MISSING
            if not any(hmac.compare_digest(_signature(key, item), given) for key in keys):
                return Reason.MISMATCH if posting.secrets else Reason.UNCONFIGURED
        return VERIFIED

    def sign(self, draft: Draft) -> list[tuple[str, str]]:  # noqa: ARG002 - nothing goes into headers
        """Raises: ValueError, always."""
        raise ValueError("the signature of --verify adyen-payments is inside the body, which is sent as it is")


def hex_key(secret: str) -> bytes:
    """The bytes of a key; none where the text is none."""
    try:
        return bytes.fromhex(secret)
    except ValueError:
        return b""


def check_hex(text: str) -> None:
    """Returns if the text is hexadecimal digits. Raises: ValueError."""
    check_text(text, MIN_SECRET)
    if not hex_key(text):
        raise ValueError("the HMAC key of Adyen is hexadecimal digits")


def _items(body: bytes) -> list[dict[str, Any]]:
    """The items of a notification, or the one that the body is; none where it is neither."""
    try:
        text = body if len(body) <= MAX_JSON else b""
        document = json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=_unlike)
    except (ValueError, RecursionError):
        return []
    listed = document.get("notificationItems") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        return [document] if isinstance(document, dict) else []
    items = [entry.get("NotificationRequestItem") for entry in listed if isinstance(entry, dict)]
    known = [item for item in items if isinstance(item, dict)]
    return known if len(known) == len(listed) <= MAX_ITEMS else []


def _unlike(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. Raises: ValueError for a repeated name, of which a destination may read the other value."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name is repeated")
    return value


def _said(item: dict[str, Any], *path: str) -> str:
    """A text in an item, empty where it is not there."""
    value: Any = item
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _signature(key: bytes, item: dict[str, Any]) -> bytes:
    fields = (_said(item, "amount", name) if name in IN_AMOUNT else _said(item, name) for name in COVERED)
    return base64.b64encode(hmac.digest(key, ":".join(fields).encode("utf-8", "surrogatepass"), "sha256"))
