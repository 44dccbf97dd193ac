"""Names of partners and destinations. A removed one's name is free again, so several may have had it."""

from typing import Any

import sqlalchemy as sa

from domain.values import is_name
from storage.errors import NotFound
from storage.tables import destinations, partners


def living(
    connection: sa.Connection, table: sa.Table, query: sa.Select[*tuple[Any, ...]], name: str
) -> sa.Row[*tuple[Any, ...]]:
    """What the query says of the one that has this name now. Raises: NotFound."""
    query = query.where(table.c.name == name, table.c.removed_at.is_(None))
    row = connection.execute(query).one_or_none() if is_name(name) else None
    if row is None:
        raise _unknown(table, name)
    return row


def ids_ever(connection: sa.Connection, table: sa.Table, name: str) -> list[int]:
    """Every one that has or had this name: what a removed one left stays findable by it. Raises: NotFound."""
    query = sa.select(table.c.id).where(table.c.name == name)
    found = list(connection.scalars(query)) if is_name(name) else []
    if not found:
        raise _unknown(table, name)
    return found


def is_known(connection: sa.Connection, name: str) -> bool:
    """Whether a partner or a destination has or had this name."""
    had = [sa.exists().where(table.c.name == name) for table in (partners, destinations)]
    return bool(connection.scalar(sa.select(sa.or_(*had))))


def _unknown(table: sa.Table, name: str) -> NotFound:
    return NotFound(f"no {table.name.removesuffix('s')} {name[:70]!r}")
