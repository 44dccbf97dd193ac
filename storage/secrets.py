"""How secrets rest: sealed with AES-256-GCM under the installation's master keys, opened only in memory.

A sealed value is `version (1) + key fingerprint (8) + nonce (12) + ciphertext and tag`. The fingerprint names the key
without telling it, so keys rotate: the first one seals, every one opens. The kind of the secret is bound in as
associated data: a sealed URL put in the place of a sealed secret does not open.

The cryptography is loaded by who has a vault: most commands of the command line have none, and it takes its time.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Sequence

PARTNER_SECRET = b"partner-secret"
DESTINATION_SECRET = b"destination-secret"
DESTINATION_URL = b"destination-url"
DESTINATION_HEADERS = b"destination-headers"
ANSWER = b"answer"
MEANT = {  # how people are told which sealed value is meant; the owner's name follows
    PARTNER_SECRET: "the secret of partner",
    DESTINATION_SECRET: "the secret of destination",
    DESTINATION_URL: "the URL of destination",
    DESTINATION_HEADERS: "the list of headers of destination",
    ANSWER: "the answer under Idempotency-Key",
}

KEY_BYTES = 32
VERSION = b"\x01"
NONCE_BYTES = 12  # random: 2^32 seals under one key before a repeat is thinkable (NIST SP 800-38D, 8.3)
FINGERPRINT_BYTES = 8
_OVERHEAD = len(VERSION) + FINGERPRINT_BYTES + NONCE_BYTES + 16


class CannotOpen(Exception):
    """A sealed value does not open with the master keys at hand; the message says whose it is and why, never what."""


def fingerprint(key: bytes) -> bytes:
    """Names a key without telling it."""
    return hashlib.sha256(b"hookyard master key\0" + key).digest()[:FINGERPRINT_BYTES]


class Vault:
    """Seals with the first key, opens with all."""

    __slots__ = ("_first", "_keys", "_marker")

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Raises: ValueError when there is no key or one is not 32 bytes."""
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ValueError(f"a master key is exactly {KEY_BYTES} bytes, and at least one is needed")
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._keys = {fingerprint(key): AESGCM(key) for key in keys}
        self._first = fingerprint(keys[0])
        self._marker = hmac.digest(keys[0], b"hookyard marks", "sha256")

    @property
    def first(self) -> str:
        """The fingerprint of the key that seals, in hexadecimal digits."""
        return self._first.hex()

    def mark(self, text: str) -> str:
        """Eight digits that tell a text from others and nothing about it: without the key no guess can be tried."""
        return hmac.digest(self._marker, text.encode(), "sha256")[:4].hex()

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """The plain bytes, sealed for this context. Twice the same is sealed differently."""
        nonce = os.urandom(NONCE_BYTES)
        head = VERSION + self._first
        return head + nonce + self._keys[self._first].encrypt(nonce, plain, head + context)

    def open(self, sealed: bytes, context: bytes, owner: str) -> bytes:
        """What was sealed; `owner` is whose it is, for the message.

        Raises: CannotOpen for a missing key, another context, or damage.
        """
        from cryptography.exceptions import InvalidTag

        meant = f"{MEANT[context]} {owner}"
        if len(sealed) < _OVERHEAD or sealed[:1] != VERSION:
            raise CannotOpen(f"{meant} is no sealed value")
        head, rest = sealed[: 1 + FINGERPRINT_BYTES], sealed[1 + FINGERPRINT_BYTES :]
        key = self._keys.get(head[1:])
        if key is None:
            raise CannotOpen(
                f"{meant} was sealed with master key {head[1:].hex()}, which is not in HOOKYARD_MASTER_KEY"
            )
        try:
            return key.decrypt(rest[:NONCE_BYTES], rest[NONCE_BYTES:], head + context)
        except InvalidTag as problem:
            raise CannotOpen(f"{meant} is damaged or stands in the wrong place") from problem

    def is_current(self, sealed: bytes) -> bool:
        """Whether the first key sealed it (else it waits for being sealed again)."""
        return sealed[1 : 1 + FINGERPRINT_BYTES] == self._first

    def seal_text(self, text: str, context: bytes) -> bytes:
        """`seal` of UTF-8."""
        return self.seal(text.encode(), context)

    def open_text(self, sealed: bytes, context: bytes, owner: str) -> str:
        """What `seal_text` was given. Raises: CannotOpen."""
        return self.open(sealed, context, owner).decode()

    def seal_headers(self, headers: Iterable[tuple[str, str]]) -> bytes:
        """A destination's configured headers, sealed as JSON `[[name, value], ...]`."""
        return self.seal(json.dumps([list(pair) for pair in headers]).encode(), DESTINATION_HEADERS)

    def open_headers(self, sealed: bytes, owner: str) -> tuple[tuple[str, str], ...]:
        """What `seal_headers` was given. Raises: CannotOpen."""
        pairs = json.loads(self.open(sealed, DESTINATION_HEADERS, owner))
        return tuple((str(name), str(value)) for name, value in pairs)
