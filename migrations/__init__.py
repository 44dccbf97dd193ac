"""The schema's history: Alembic revisions, applied by `storage.schema.migrate`."""
