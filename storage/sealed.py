"""Everything in force that is sealed: whether it opens, under which key it rests, and how it comes under the first one.

What has been removed or has expired is never opened again, so it does not count and is left as it is.
"""

from dataclasses import dataclass

import sqlalchemy as sa

from storage import audit
from storage.secrets import (
    DESTINATION_HEADERS,
    DESTINATION_SECRET,
    DESTINATION_URL,
    PARTNER_SECRET,
    CannotOpen,
    Vault,
)
from storage.transactions import Store

# Per kind its table, its column, and its rows: id, owner's name, sealed value. In the order in which changes lock them.
KINDS = {
    DESTINATION_URL: ("destinations", "sealed_url"),
    DESTINATION_HEADERS: ("destinations", "sealed_headers"),
    DESTINATION_SECRET: ("destination_secrets", "sealed"),
    PARTNER_SECRET: ("partner_secrets", "sealed"),
}
ROWS = {
    "destinations": "SELECT t.id, t.name, t.{column} FROM destinations t WHERE t.removed_at IS NULL",
    "destination_secrets": """
        SELECT t.id, o.name, t.{column} FROM destination_secrets t JOIN destinations o ON o.id = t.destination_id
        WHERE o.removed_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())""",
    "partner_secrets": """
        SELECT t.id, o.name, t.{column} FROM partner_secrets t JOIN partners o ON o.id = t.partner_id
        WHERE o.removed_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())""",
}
SAVE = """
UPDATE {table} t SET {column} = n.sealed
FROM unnest(CAST(:ids AS bigint[]), CAST(:sealed AS bytea[])) AS n (id, sealed) WHERE t.id = n.id
"""


@dataclass(frozen=True, slots=True)
class Survey:
    """What the master keys at hand open. `closed` says of each value that they do not open whose it is and why."""

    opened: int
    old: int  # of these, sealed with another key than the first
    closed: tuple[str, ...]


def survey(connection: sa.Connection, vault: Vault) -> Survey:
    """The state of everything sealed; nothing is changed."""
    opened, old, closed = 0, 0, []
    for kind in KINDS:
        for _, owner, sealed in _rows(connection, kind):
            try:
                vault.open(sealed, kind, owner)
            except CannotOpen as problem:
                closed.append(str(problem))
            else:
                opened += 1
                old += not vault.is_current(sealed)
    return Survey(opened, old, tuple(closed))


def reseal(store: Store, vault: Vault, *, actor: str) -> int:
    """Everything is sealed with the first master key. How many values were not, before.

    All or nothing. Raises: CannotOpen, StorageUnavailable.
    """

    def work(connection: sa.Connection) -> int:
        done = sum(_reseal(connection, vault, kind) for kind in KINDS)
        if done:
            audit.record(connection, actor, "reseal", "sealed values", {"values": done, "master_key": vault.first})
        return done

    return store.run(work)


def _reseal(connection: sa.Connection, vault: Vault, kind: bytes) -> int:
    table, column = KINDS[kind]
    old = [row for row in _rows(connection, kind, lock=True) if not vault.is_current(row[2])]
    if old:
        sealed = [vault.seal(vault.open(value, kind, owner), kind) for _, owner, value in old]
        save = sa.text(SAVE.format(table=table, column=column))
        connection.execute(save, {"ids": [row[0] for row in old], "sealed": sealed})
    return len(old)


def _rows(connection: sa.Connection, kind: bytes, *, lock: bool = False) -> list[tuple[int, str, bytes]]:
    table, column = KINDS[kind]
    query = ROWS[table].format(column=column) + " ORDER BY t.id" + " FOR NO KEY UPDATE OF t" * lock
    rows = connection.execute(sa.text(query))
    return [(row[0], row[1], bytes(row[2])) for row in rows]
