"""What was answered under an `Idempotency-Key`, for a day: the same request again does nothing and is answered so.

An answer may hold a secret that is shown once, so it is sealed under what only its asker knows: the key they chose and
what they came in with. Neither is kept.
"""

import hashlib
import hmac
from datetime import timedelta
from typing import Literal

import sqlalchemy as sa

from storage.secrets import ANSWER, CannotOpen, Vault

LIFE = timedelta(hours=24)

TAKE = sa.text("""
INSERT INTO answers (digest, asked) VALUES (:digest, :asked)
ON CONFLICT (digest) DO UPDATE SET asked = excluded.asked, sealed = NULL, at = now() WHERE answers.at < now() - :life
RETURNING true
""")
FIND = sa.text("SELECT asked, sealed FROM answers WHERE digest = :digest")
KEEP = sa.text("UPDATE answers SET sealed = :sealed WHERE digest = :digest")
FORGET = sa.text("DELETE FROM answers WHERE digest = :digest")
PURGE = sa.text("DELETE FROM answers WHERE at < now() - :life")

Taken = Literal["new", "other", "unanswered"]


class Key:
    """The key of one asker. `credential` is what they came in with."""

    __slots__ = ("_digest", "_vault")

    def __init__(self, asker: str, credential: str, key: str) -> None:
        self._digest = hashlib.sha256(f"{asker}\0{key}".encode()).digest()
        self._vault = Vault([hmac.digest(credential.encode("utf-8", "surrogateescape"), key.encode(), "sha256")])

    def take(self, connection: sa.Connection, asked: bytes) -> Taken | bytes:
        """`new`: it was free and is taken now. Else the answer that was given, or why there is none.

        `other`: it was used for another request; `unanswered`: for this one, which goes on or was cut off.
        """
        if connection.execute(TAKE, {"digest": self._digest, "asked": asked, "life": LIFE}).scalar_one_or_none():
            return "new"
        row = connection.execute(FIND, {"digest": self._digest}).one()
        if not hmac.compare_digest(row.asked, asked):
            return "other"
        try:
            return "unanswered" if row.sealed is None else self._vault.open(row.sealed, ANSWER, "")
        except CannotOpen:
            return "other"  # asked by another session of theirs

    def keep(self, connection: sa.Connection, answer: bytes) -> None:
        """The same again gets this answer."""
        connection.execute(KEEP, {"digest": self._digest, "sealed": self._vault.seal(answer, ANSWER)})

    def forget(self, connection: sa.Connection) -> None:
        """It is free again: nothing was done."""
        connection.execute(FORGET, {"digest": self._digest})


def purge(connection: sa.Connection) -> int:
    """Answers older than their life are gone. How many went."""
    return connection.execute(PURGE, {"life": LIFE}).rowcount
