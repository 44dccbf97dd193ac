"""Brings a database to the schema this version needs: the revisions, then the functions of `storage/sql`.

Tables change by revision and only go forward. Functions are code: each version installs its own, all in one
transaction.
"""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from storage.errors import StorageUnavailable, first_line
from storage.transactions import sqlalchemy_url

SQL = Path(__file__).parent / "sql"
MIGRATION_LOCK = 4_046_127  # any number of our own: one migration at a time


def migrate(url: str, shards: int = 64) -> None:
    """The database is at the newest schema. Safe to call from several processes at once; idempotent.

    `shards` counts only at the first migration. Raises: StorageUnavailable.
    """
    engine = sa.create_engine(sqlalchemy_url(url), poolclass=sa.pool.NullPool, connect_args={"connect_timeout": 5})
    try:
        with engine.begin() as connection:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
            config = alembic_config()
            config.attributes.update(connection=connection, shards=shards)
            command.upgrade(config, "head")
            for path in sorted(SQL.glob("*.sql")):
                connection.exec_driver_sql(path.read_text().replace("%", "%%"))
    except sa.exc.OperationalError as problem:
        raise StorageUnavailable(f"database: {first_line(problem.orig or problem)}") from problem
    finally:
        engine.dispose()


def pending(connection: sa.Connection) -> bool:
    """Whether revisions of this version are not applied yet."""
    current = MigrationContext.configure(connection).get_current_revision()
    return current != ScriptDirectory.from_config(alembic_config()).get_current_head()


def alembic_config() -> Config:
    """Alembic's settings, without an ini file."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent.parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config
