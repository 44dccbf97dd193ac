"""Sessions: browsers that have logged in with a token. A session ends with its token, by logging out, or by its age.

The cookie's value is random and kept only as a digest. The token of the settings has no row to refer to: such a session
keeps an HMAC of it under the cookie's value, so that neither can be learnt from the row, and another token in the
settings ends it.
"""

import hmac
import secrets
from datetime import timedelta

import sqlalchemy as sa

from storage import audit
from storage.tokens import Holder, digest

LIFE = timedelta(hours=12)  # a working day; then the token is asked for again

OPEN = sa.text("""
INSERT INTO sessions (digest, token_id, proof, expires_at) VALUES (:digest, :token, :proof, now() + :life)
""")
FIND = sa.text("""
SELECT t.id, t.name, t.role, s.proof FROM sessions s LEFT JOIN tokens t ON t.id = s.token_id
WHERE s.digest = :digest AND s.expires_at > now() AND coalesce(t.expires_at > now(), true)
""")
CLOSE = sa.text("DELETE FROM sessions WHERE digest = :digest")
PURGE = sa.text("DELETE FROM sessions WHERE expires_at < now()")


def open_(connection: sa.Connection, holder: Holder, token: str) -> str:
    """A new session of who holds this token: the cookie's value."""
    value = secrets.token_urlsafe(32)
    proof = _proof(value, token) if holder.id is None else None
    connection.execute(OPEN, {"digest": digest(value), "token": holder.id, "proof": proof, "life": LIFE})
    audit.record(connection, holder.name, "login", holder.name)
    return value


def find(connection: sa.Connection, value: str, of_settings: str | None) -> Holder | None:
    """Whose session this is, by the cookie's value; `of_settings` is the token that the settings name now."""
    row = connection.execute(FIND, {"digest": digest(value)}).one_or_none()
    if row is None:
        return None
    if row.proof is None:
        return Holder(row.id, row.name, row.role)
    same = of_settings is not None and hmac.compare_digest(row.proof, _proof(value, of_settings))
    return OF_SETTINGS if same else None


def close(connection: sa.Connection, value: str) -> None:
    """There is no session of this cookie any more."""
    connection.execute(CLOSE, {"digest": digest(value)})


def purge(connection: sa.Connection) -> int:
    """Sessions that have ended by their age are gone. How many went."""
    return connection.execute(PURGE).rowcount


def _proof(value: str, token: str) -> bytes:
    return hmac.digest(value.encode(), token.encode("utf-8", "surrogateescape"), "sha256")


OF_SETTINGS = Holder(None, "admin", "admin")
"""Who holds the token of HOOKYARD_ADMIN_TOKEN."""
