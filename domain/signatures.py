"""Standard Webhooks 1.0 signatures: what proves to a destination that an event comes from us, unchanged.

The signed content is `{webhook-id}.{webhook-timestamp}.{body}`, the body's bytes as sent. Source: the specification of
standard-webhooks/standard-webhooks, spec/standard-webhooks.md.
"""

import base64
import binascii
import hmac
from collections.abc import Iterable
from functools import lru_cache

PREFIX = "whsec_"
VERSION = "v1"
KEY_BYTES = range(16, 65)  # the specification asks for 24 to 64; shorter keys exist in the field
NEW_KEY_BYTES = range(24, 65)


class BadSecret(ValueError):
    """The text is no Standard Webhooks secret. The message never quotes it."""


def secret_of(key: bytes) -> str:
    """A secret made of 24 to 64 random bytes, as a person copies it. Raises: BadSecret."""
    if len(key) not in NEW_KEY_BYTES:
        raise BadSecret(f"a new secret is made of 24 to 64 random bytes, not {len(key)}")
    return PREFIX + base64.b64encode(key).decode()


def key_of(secret: str) -> bytes:
    """The key a secret stands for; the prefix and the padding may be missing. Raises: BadSecret."""
    text = secret.strip().removeprefix(PREFIX)
    try:
        key = base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True)
    except (binascii.Error, ValueError) as problem:
        raise BadSecret("a secret is `whsec_` and base64") from problem
    if len(key) not in KEY_BYTES:
        raise BadSecret(f"a secret holds {KEY_BYTES.start} to {KEY_BYTES.stop - 1} bytes in base64, not {len(key)}")
    return key


def signature(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """`v1,<base64>` over these bytes under this key."""
    content = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    return f"{VERSION},{base64.b64encode(hmac.digest(key, content, 'sha256')).decode()}"


def sign(secrets: Iterable[str], message_id: str, timestamp: int, body: bytes) -> str:
    """The `webhook-signature` value: a signature per secret, in their order, space-separated. Raises: BadSecret."""
    return " ".join(signature(_cached_key(secret), message_id, timestamp, body) for secret in secrets)


_cached_key = lru_cache(maxsize=4096)(key_of)
