"""The configuration's tables for SQLAlchemy: columns and types as `migrations/` made them, nothing created here.

What grows with traffic is written and read by statements of its own; only what people edit field by field is here.
"""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

metadata = sa.MetaData()
_instant = sa.DateTime(timezone=True)

partners = sa.Table(
    "partners",
    metadata,
    sa.Column("id", sa.Integer, sa.Identity(always=True), primary_key=True),
    sa.Column("name", sa.Text),
    sa.Column("shard", sa.Integer),
    sa.Column("state", sa.Text),
    sa.Column("verify", sa.Text),
    sa.Column("verify_options", pg.JSONB),
    sa.Column("max_backlog", sa.Integer),
    sa.Column("on_backlog_full", sa.Text),
    sa.Column("rate", sa.Double),
    sa.Column("max_body", sa.Integer),
    sa.Column("dedupe", sa.Text),
    sa.Column("type", sa.Text),
    sa.Column("order_key", sa.Text),
    sa.Column("created_at", _instant),
    sa.Column("removed_at", _instant),
)

partner_secrets = sa.Table(
    "partner_secrets",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("partner_id", sa.Integer),
    sa.Column("sealed", sa.LargeBinary),
    sa.Column("created_at", _instant),
    sa.Column("expires_at", _instant),
)

destinations = sa.Table(
    "destinations",
    metadata,
    sa.Column("id", sa.Integer, sa.Identity(always=True), primary_key=True),
    sa.Column("name", sa.Text),
    sa.Column("sealed_url", sa.LargeBinary),
    sa.Column("sealed_headers", sa.LargeBinary),
    sa.Column("state", sa.Text),
    sa.Column("timeout_ms", sa.Integer),
    sa.Column("concurrency", sa.Integer),
    sa.Column("rate", sa.Double),
    sa.Column("max_attempts", sa.Integer),
    sa.Column("retry_base_ms", sa.BigInteger),
    sa.Column("retry_factor", sa.Double),
    sa.Column("retry_cap_ms", sa.BigInteger),
    sa.Column("park_on", pg.ARRAY(sa.Integer)),
    sa.Column("suspend_after_ms", sa.BigInteger),
    sa.Column("on_park", sa.Text),
    sa.Column("breaker_failures", sa.Integer),
    sa.Column("breaker_reset_ms", sa.BigInteger),
    sa.Column("created_at", _instant),
    sa.Column("removed_at", _instant),
)

destination_secrets = sa.Table(
    "destination_secrets",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("destination_id", sa.Integer),
    sa.Column("sealed", sa.LargeBinary),
    sa.Column("created_at", _instant),
    sa.Column("expires_at", _instant),
)

gates = sa.Table(
    "gates",
    metadata,
    sa.Column("destination_id", sa.Integer, primary_key=True),
    sa.Column("in_flight", sa.Integer),
    sa.Column("breaker", sa.Text),
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("at", _instant),
    sa.Column("actor", sa.Text),
    sa.Column("action", sa.Text),
    sa.Column("subject", sa.Text),
    sa.Column("details", pg.JSONB),
)
