"""Tokens: what lets a person or a program in at the ops port, under a name, in a role, for a while.

A token is 256 random bits, so its plain SHA-256 is as good a lock as any; the token itself is told once and not kept.
Revoking deletes the row, and the sessions with it; the audit keeps the name.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args

import sqlalchemy as sa

from domain.values import format_duration, parse_name
from storage import audit
from storage.errors import Conflict, Invalid, NotFound

Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)  # each may do what those before it may

PREFIX = "hky_"  # tells scanners of leaked secrets, and people, what it is
TAKEN = {"admin": "the token of HOOKYARD_ADMIN_TOKEN", "hookyard": "what happens by itself"}
LONGEST = timedelta(days=3650)

ADD = sa.text("""
INSERT INTO tokens (name, role, digest, expires_at) VALUES (:name, :role, :digest, now() + :span)
ON CONFLICT (name) DO NOTHING
RETURNING name, role, created_at, expires_at, false
""")
EXPIRED = "coalesce(expires_at <= now(), false)"
LISTED = sa.text(f"SELECT name, role, created_at, expires_at, {EXPIRED} FROM tokens ORDER BY name")
OF_DIGEST = sa.text(f"SELECT id, name, role FROM tokens WHERE digest = :digest AND NOT {EXPIRED}")
REVOKE = sa.text("DELETE FROM tokens WHERE name = :name")


@dataclass(frozen=True, slots=True)
class Token:
    """A token as people see it: never the token."""

    name: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    expired: bool


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a valid token. `id` is None for the token of the settings."""

    id: int | None
    name: str
    role: Role


def add(
    connection: sa.Connection, name: str, role: str, expires: timedelta | None = None, *, actor: str
) -> tuple[Token, str]:
    """A new token, and what lets its holder in: told now and never again. Raises: Invalid, Conflict."""
    _check(name, role, expires)
    text = PREFIX + secrets.token_urlsafe(32)
    values = {"name": name, "role": role, "digest": digest(text), "span": expires}
    row = connection.execute(ADD, values).one_or_none()
    if row is None:
        raise Conflict(f"there is a token {name!r} already: revoke it first, or take another name")
    details = {"role": role} | ({} if expires is None else {"expires": format_duration(expires)})
    audit.record(connection, actor, "token add", name, details)
    return Token(*row), text


def listed(connection: sa.Connection) -> list[Token]:
    """Every token, by name; expired ones too, until they are revoked."""
    return [Token(*row) for row in connection.execute(LISTED)]


def revoke(connection: sa.Connection, name: str, *, actor: str) -> None:
    """It lets nobody in any more, and the browsers that logged in with it are logged out. Raises: NotFound."""
    if not connection.execute(REVOKE, {"name": name}).rowcount:
        raise NotFound(f"no token {name[:70]!r}")
    audit.record(connection, actor, "token revoke", name)


def holder(connection: sa.Connection, text: str) -> Holder | None:
    """Who holds this token; None where it is no valid one.

    It is looked up by its digest: how long that takes tells nothing about tokens that are near.
    """
    row = connection.execute(OF_DIGEST, {"digest": digest(text)}).one_or_none()
    return None if row is None else Holder(*row)


def may(role: Role, needed: Role) -> bool:
    """Whether who has this role may do what needs that one."""
    return ROLES.index(role) >= ROLES.index(needed)


def digest(text: str) -> bytes:
    """SHA-256 of a random text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def _check(name: str, role: str, expires: timedelta | None) -> None:
    try:
        parse_name(name)
    except ValueError as problem:
        raise Invalid(str(problem)) from problem
    if name in TAKEN:
        raise Invalid(f"name {name!r}: in the audit that is {TAKEN[name]}")
    if role not in ROLES:
        raise Invalid(f"role {role[:30]!r}: {', '.join(ROLES)} are allowed")
    if expires is not None and not timedelta(0) < expires <= LONGEST:
        raise Invalid(f"expires {format_duration(expires)}: above 0 and at most {LONGEST.days}d are allowed")
