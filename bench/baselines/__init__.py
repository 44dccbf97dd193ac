"""What people write instead of a pipeline."""

TABLE = """
CREATE TABLE webhooks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, partner text NOT NULL, webhook_id text NOT NULL,
    headers jsonb NOT NULL, body bytea NOT NULL, state text NOT NULL DEFAULT 'queued',
    received_at timestamptz NOT NULL DEFAULT now(), delivered_at timestamptz, UNIQUE (partner, webhook_id)
)
"""
