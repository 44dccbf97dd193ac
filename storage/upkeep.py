"""Housekeeping that nobody waits for: partitions ahead; what has outlived its use goes, in small transactions."""

import sqlalchemy as sa

from storage.log import DEDUPE_WINDOW
from storage.transactions import Store

DAYS_AHEAD = 14  # partitions: a jobs process may be away that long before rows go to the default ones
CHUNK = 1_000  # rows per transaction
PAGES = 256  # 2 MiB of a table are looked through at a time

# The function waits 200 ms for each parent, no longer: behind it whoever wants to write would wait too.
MAKE_PARTITIONS = sa.text("SELECT make_partitions(:ahead)")
# relpages is an estimate from the last vacuum; the real size also counts what came since.
SIZE = sa.text("SELECT (pg_relation_size('dedupe') / current_setting('block_size')::int)::bigint")
# By place, not by an index: one more index would cost every accepted event, and one slow look a day costs nobody.
# received_at is asked again outside: a row that was renewed meanwhile stays.
PURGE_DEDUPE = sa.text("""
DELETE FROM dedupe WHERE received_at < now() - :window AND ctid = ANY (ARRAY(
    SELECT ctid FROM dedupe
    WHERE ctid >= format('(%s,0)', :first)::tid AND ctid < format('(%s,0)', :last)::tid
      AND received_at < now() - :window
    LIMIT :chunk
))
""")
EXPIRED = "expires_at < now() - interval '1 day'"  # of use to nobody; the day is for clocks that differ


def make_partitions(store: Store, ahead: int = DAYS_AHEAD) -> int:
    """Daily partitions exist that far ahead. How many are new.

    Raises: Locked while somebody reads what they would be part of: another time will do; StorageUnavailable.
    """
    with store.begin() as connection:
        return int(connection.execute(MAKE_PARTITIONS, {"ahead": ahead}).scalar_one())


def purge_dedupe(store: Store, part: int, parts: int) -> int:
    """In this part of the table (0 to parts - 1) no dedupe value is older than the window. How many went.

    Raises: StorageUnavailable.
    """
    with store.begin() as connection:
        pages = int(connection.execute(SIZE).scalar_one()) + 1
    begin, end = pages * part // parts, pages * (part + 1) // parts
    return sum(_purge_pages(store, first, min(first + PAGES, end)) for first in range(begin, end, PAGES))


def purge_secrets(store: Store) -> int:
    """Secrets whose overlap ended more than a day ago are gone. How many went. Raises: StorageUnavailable."""
    return sum(_purge_secrets(store, table) for table in ("partner_secrets", "destination_secrets"))


def _purge_pages(store: Store, first: int, last: int) -> int:
    values = {"first": first, "last": last, "window": DEDUPE_WINDOW, "chunk": CHUNK}
    done = 0
    while True:
        n = store.run(lambda connection: connection.execute(PURGE_DEDUPE, values).rowcount)
        done += n
        if n < CHUNK:
            return done


def _purge_secrets(store: Store, table: str) -> int:
    """Asks first: a DELETE, even of nothing, makes every process load its configuration again."""
    found = sa.text(f"SELECT EXISTS (SELECT FROM {table} WHERE {EXPIRED})")
    gone = sa.text(f"DELETE FROM {table} WHERE {EXPIRED}")

    def purge(connection: sa.Connection) -> int:
        return connection.execute(gone).rowcount if connection.execute(found).scalar_one() else 0

    return store.run(purge)
