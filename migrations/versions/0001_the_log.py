"""The log, its lanes, and who may touch them.

Revision ID: 0001
Revises:

The tables in the words of docs/glossary.md. What grows with traffic (`events`, `deliveries`, `attempts`) is partitioned
by the event's `received_at` and leads its keys with `partner_id`; nothing refers to it by a foreign key, so that a
partition can be detached. What an UPDATE changes on the hot path is in no index, so that those updates stay HOT.
"""

from alembic import context, op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NAME = "name ~ '^[a-z0-9][a-z0-9-]{0,62}$'"

INSTALLATION = """
CREATE TABLE installation (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    incarnation uuid NOT NULL DEFAULT gen_random_uuid(), -- keys in Redis carry it: a new database hears no old hints
    shards int NOT NULL CHECK (shards BETWEEN 1 AND 1024),
    config_version bigint NOT NULL DEFAULT 1,            -- raised by every change of configuration; processes poll it
    created_at timestamptz NOT NULL DEFAULT now()
);
"""

CONFIGURATION = f"""
CREATE TABLE partners (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,     -- never reused, names are
    name text NOT NULL CHECK ({NAME}),
    shard int NOT NULL,
    state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused')),
    verify text NOT NULL DEFAULT 'none',
    verify_options jsonb NOT NULL DEFAULT '{{}}',
    max_backlog int NOT NULL DEFAULT 100000 CHECK (max_backlog > 0),
    on_backlog_full text NOT NULL DEFAULT 'reject' CHECK (on_backlog_full IN ('reject', 'accept')),
    rate double precision CHECK (rate > 0),              -- events per second, NULL: unlimited
    max_body int NOT NULL DEFAULT 1048576 CHECK (max_body > 0),
    dedupe text NOT NULL,
    type text NOT NULL,
    order_key text NOT NULL DEFAULT 'none',
    created_at timestamptz NOT NULL DEFAULT now(),
    removed_at timestamptz
);
CREATE UNIQUE INDEX partners_name ON partners (name) WHERE removed_at IS NULL;
CREATE INDEX partners_shard ON partners (shard);

CREATE TABLE partner_secrets (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partner_id int NOT NULL REFERENCES partners,
    sealed bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz                               -- NULL: until rotated
);
CREATE INDEX partner_secrets_partner ON partner_secrets (partner_id);

CREATE TABLE destinations (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL CHECK ({NAME}),
    sealed_url bytea NOT NULL,                           -- a URL may hold a token: sealed like a secret
    sealed_headers bytea NOT NULL,                       -- configured headers, JSON [[name, value], ...], sealed
    state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'suspended')),
    timeout_ms int NOT NULL DEFAULT 30000 CHECK (timeout_ms BETWEEN 100 AND 600000),
    concurrency int NOT NULL DEFAULT 10 CHECK (concurrency BETWEEN 1 AND 10000),
    rate double precision CHECK (rate > 0),              -- attempts per second, NULL: unlimited
    max_attempts int NOT NULL DEFAULT 12 CHECK (max_attempts > 0),
    retry_base_ms bigint NOT NULL DEFAULT 5000 CHECK (retry_base_ms >= 10),
    retry_factor double precision NOT NULL DEFAULT 3 CHECK (retry_factor >= 1),
    retry_cap_ms bigint NOT NULL DEFAULT 21600000 CHECK (retry_cap_ms >= 10),
    park_on int[] NOT NULL DEFAULT '{{}}',
    suspend_after_ms bigint NOT NULL DEFAULT 432000000 CHECK (suspend_after_ms > 0),
    on_park text NOT NULL DEFAULT 'continue' CHECK (on_park IN ('continue', 'hold')),
    breaker_failures int NOT NULL DEFAULT 5 CHECK (breaker_failures > 0),
    breaker_reset_ms bigint NOT NULL DEFAULT 30000 CHECK (breaker_reset_ms >= 10),
    created_at timestamptz NOT NULL DEFAULT now(),
    removed_at timestamptz
);
CREATE UNIQUE INDEX destinations_name ON destinations (name) WHERE removed_at IS NULL;

CREATE TABLE destination_secrets (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    destination_id int NOT NULL REFERENCES destinations,
    sealed bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz
);
CREATE INDEX destination_secrets_destination ON destination_secrets (destination_id);

-- A version of a subscription holds for the sequences [from_seq, until_seq); both are set under the lock of the
-- partner's head row, so the moment of acceptance decides who receives an event (and how ordered).
CREATE TABLE subscriptions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partner_id int NOT NULL REFERENCES partners,
    destination_id int NOT NULL REFERENCES destinations,
    ordering text NOT NULL DEFAULT 'partner' CHECK (ordering IN ('partner', 'key', 'none')),
    types text[],                                        -- globs, NULL: every type
    pattern text,                                        -- the same as one regular expression
    max_waiting int NOT NULL DEFAULT 1000000 CHECK (max_waiting > 0),
    from_seq bigint NOT NULL,
    until_seq bigint,                                    -- NULL: until further notice
    created_at timestamptz NOT NULL DEFAULT now(),
    CHECK (until_seq >= from_seq),
    CHECK ((types IS NULL) = (pattern IS NULL))
);
CREATE INDEX subscriptions_partner ON subscriptions (partner_id, destination_id);
CREATE UNIQUE INDEX subscriptions_current ON subscriptions (partner_id, destination_id) WHERE until_seq IS NULL;

CREATE FUNCTION raise_config_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE installation SET config_version = config_version + 1;
    RETURN NULL;
END $$;
"""

TRIGGERS = "".join(
    f"""
CREATE TRIGGER config_changed AFTER INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION raise_config_version();
"""
    for table in ("partners", "partner_secrets", "destinations", "destination_secrets", "subscriptions")
)

LOG = """
-- Locked by ingest for each batch: the one writer of a partner's numbers.
CREATE TABLE partner_heads (
    partner_id int PRIMARY KEY REFERENCES partners,
    last_seq bigint NOT NULL DEFAULT 0,
    last_at timestamptz NOT NULL DEFAULT '-infinity',    -- received_at never goes back within a partner
    tokens double precision,                             -- of the partner's rate limit
    refilled_at timestamptz
) WITH (fillfactor = 50);

-- Moved by the owner alone, a row of its own so that ingest and dispatch do not contend.
CREATE TABLE partner_tails (
    partner_id int PRIMARY KEY REFERENCES partners,
    cursor bigint NOT NULL DEFAULT 0,                    -- dispatched up to and including this sequence
    cursor_at timestamptz NOT NULL DEFAULT '-infinity',  -- its received_at: reads of the log start in its partition
    drain_per_second double precision                    -- measured by the owner; for Retry-After
) WITH (fillfactor = 50);

CREATE TABLE events (
    partner_id int NOT NULL,
    seq bigint NOT NULL,
    received_at timestamptz NOT NULL,                    -- whole milliseconds, the database's clock
    type text,
    order_key bigint,                                    -- hash of the order key's value
    headers bytea NOT NULL,                              -- as received, `name: value` lines
    query bytea,
    body bytea NOT NULL,
    PRIMARY KEY (partner_id, seq, received_at)
) PARTITION BY RANGE (received_at);

CREATE TABLE dedupe (
    partner_id int NOT NULL,
    digest bytea NOT NULL,                               -- SHA-256 of the dedupe value
    seq bigint NOT NULL,
    received_at timestamptz NOT NULL,
    repeats int NOT NULL DEFAULT 0,
    conflicts int NOT NULL DEFAULT 0,                    -- repeats that came with other bytes
    PRIMARY KEY (partner_id, digest)
) WITH (fillfactor = 90);
"""

DELIVERIES = """
CREATE TYPE delivery_state AS ENUM ('queued', 'delivering', 'delivered', 'parked', 'discarded');

CREATE TABLE deliveries (
    partner_id int NOT NULL,
    destination_id int NOT NULL,
    seq bigint NOT NULL,
    received_at timestamptz NOT NULL,                    -- the event's: both live in partitions of the same span
    state delivery_state NOT NULL,
    lane_key bigint,                                     -- NULL: unordered, 0: partner's order, else hash of the key
    attempts int NOT NULL DEFAULT 0,                     -- numbers given out, over the whole life
    failures int NOT NULL DEFAULT 0,                     -- of the retry budget, since the last replay
    crashes int NOT NULL DEFAULT 0,                      -- attempts whose worker vanished, since one with an outcome
    next_attempt_at timestamptz,                         -- NULL: at once
    token uuid,                                          -- of the attempt in flight, else of the last one
    budget_ms int,                                       -- start grace + timeout of that attempt
    park_reason text,
    holding boolean NOT NULL DEFAULT false,              -- parked where --on-park hold stops the lane
    replay_id bigint,
    delivered_at timestamptz,
    PRIMARY KEY (partner_id, destination_id, seq, received_at),
    CHECK (state <> 'delivering' OR (token IS NOT NULL AND budget_ms IS NOT NULL AND attempts > 0)),
    CHECK ((state = 'parked') = (park_reason IS NOT NULL)),
    CHECK (NOT holding OR state = 'parked'),
    CHECK (crashes BETWEEN 0 AND attempts),
    CHECK (park_reason IS DISTINCT FROM 'worker_crashed' OR crashes >= 2),
    CHECK (park_reason IN ('attempts_exhausted', 'lane_full', 'destination_suspended', 'destination_removed',
                           'rejected', 'worker_crashed', 'undeliverable'))
) PARTITION BY RANGE (received_at);

CREATE TABLE attempts (
    partner_id int NOT NULL,
    destination_id int NOT NULL,
    seq bigint NOT NULL,
    number int NOT NULL,
    received_at timestamptz NOT NULL,                    -- the event's
    started_at timestamptz NOT NULL,
    duration_ms int NOT NULL,
    status int,
    outcome text NOT NULL,
    error text,
    note text,                                           -- e.g. headers that could not be passed on
    answer bytea,                                        -- the first bytes
    replay_id bigint,
    recorded_at timestamptz NOT NULL DEFAULT now(),      -- by the database's clock: people watch them in this order
    PRIMARY KEY (partner_id, destination_id, seq, number, received_at)
) PARTITION BY RANGE (received_at);
-- Rows stand nearly in this order anyway: a few bytes per 16 pages, where a B-tree would cost every attempt.
CREATE INDEX attempts_recorded ON attempts USING brin (recorded_at) WITH (pages_per_range = 16, autosummarize = on);

-- For lanes ordered by key: what came before with the same key. Nothing in it ever changes, so updates stay HOT.
CREATE INDEX deliveries_key ON deliveries (partner_id, destination_id, lane_key, seq, received_at) WHERE lane_key <> 0;

-- The parked deliveries again, so that listing them needs no index on a column that changes on the hot path.
CREATE TABLE parked (
    partner_id int NOT NULL,
    destination_id int NOT NULL,
    seq bigint NOT NULL,
    received_at timestamptz NOT NULL,
    reason text NOT NULL,
    parked_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (partner_id, destination_id, seq)
);
CREATE INDEX parked_destination ON parked (destination_id);

-- How often deliveries were parked: a total that only grows. Journal, dispatch and commands of people all write rows
-- of `parked`; the trigger counts them in the same transaction, so the total is exact whoever parks and whatever dies.
CREATE TABLE parkings (
    destination_id int NOT NULL,
    reason text NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (destination_id, reason)
) WITH (fillfactor = 50);

-- Rows are raised in order, and after every other lock of the transaction: no two can wait for each other.
CREATE FUNCTION count_parkings() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO parkings AS p (destination_id, reason, n)
    SELECT destination_id, reason, count(*) FROM fresh GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (destination_id, reason) DO UPDATE SET n = p.n + excluded.n;
    RETURN NULL;
END $$;
CREATE TRIGGER parked_counted AFTER INSERT ON parked
    REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION count_parkings();

-- One row per (partner, destination): what waits, what is out, and from where on to read.
CREATE TABLE lanes (
    partner_id int NOT NULL,
    destination_id int NOT NULL,
    active boolean NOT NULL DEFAULT true,                -- a current subscription feeds it
    waiting int NOT NULL DEFAULT 0 CHECK (waiting >= 0), -- queued + delivering
    in_flight int NOT NULL DEFAULT 0 CHECK (in_flight >= 0),
    holding int NOT NULL DEFAULT 0 CHECK (holding >= 0), -- parked deliveries that stop it (--on-park hold)
    head_seq bigint NOT NULL DEFAULT 0,                  -- before it only `laggards` are open or holding
    head_at timestamptz NOT NULL DEFAULT '-infinity',    -- no delivery at or after head_seq was received before
    tail_seq bigint NOT NULL DEFAULT 0,                  -- the last sequence dispatched to it
    PRIMARY KEY (partner_id, destination_id)
) WITH (fillfactor = 50);
CREATE INDEX lanes_destination ON lanes (destination_id, partner_id);

-- The open or holding deliveries before their lane's head: replayed ones, and those that others have overtaken. So a
-- lane is read on from its head over nothing that was delivered since, however old its oldest open delivery is.
CREATE TABLE laggards (
    partner_id int NOT NULL,
    destination_id int NOT NULL,
    seq bigint NOT NULL,
    received_at timestamptz NOT NULL,
    lane_key bigint,
    PRIMARY KEY (partner_id, destination_id, seq)
);
CREATE INDEX laggards_key ON laggards (partner_id, destination_id, lane_key, seq);

-- What holds for a destination in the whole system, however many workers: slots, rate, breaker.
CREATE TABLE gates (
    destination_id int PRIMARY KEY,                      -- no foreign key: it would be checked at every attempt
    in_flight int NOT NULL DEFAULT 0 CHECK (in_flight >= 0),
    tokens double precision,
    refilled_at timestamptz,
    breaker text NOT NULL DEFAULT 'closed' CHECK (breaker IN ('closed', 'open', 'half_open')),
    opened_at timestamptz,
    probe_token uuid,
    probe_expires_at timestamptz,
    closed_at timestamptz,                               -- after a probe or a reset: the ramp starts here
    version bigint NOT NULL DEFAULT 0,                   -- of the breaker, raised by each of its changes
    failing_since timestamptz,                           -- every attempt from then on failed,
    failed_at timestamptz,                               -- the latest of them then
    CHECK (breaker <> 'open' OR opened_at IS NOT NULL),
    CHECK ((breaker = 'half_open') = (probe_token IS NOT NULL))
) WITH (fillfactor = 50);
"""

OWNERSHIP = """
-- A worker's lease. Every transaction of an owner locks its own row FOR SHARE; a takeover first sets `fenced`.
CREATE TABLE workers (
    token uuid PRIMARY KEY,
    name text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    fenced boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

CREATE TABLE shards (
    shard int PRIMARY KEY,
    owner uuid,
    epoch bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Lanes that somebody other than the owner changed; the owner takes these rows out and reads the lanes again.
CREATE TABLE nudges (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partner_id int NOT NULL,
    destination_id int NOT NULL
);
"""

PEOPLE = """
CREATE TABLE replays (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('replay', 'discard', 'backfill')),
    actor text NOT NULL,
    selection jsonb NOT NULL,
    why text,
    rate double precision CHECK (rate > 0),
    state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'paused', 'cancelled', 'finished')),
    expected int NOT NULL DEFAULT 0,                     -- how many it would select when it began
    selected int NOT NULL DEFAULT 0,
    done int NOT NULL DEFAULT 0,
    skipped int NOT NULL DEFAULT 0,
    failed int NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    beat_at timestamptz NOT NULL DEFAULT now(),          -- when the process that works at it was last seen to do so
    finished_at timestamptz
);

CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    details jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_at ON audit (at);
"""

ACCESS = f"""
CREATE TABLE tokens (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK ({NAME}),
    role text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    digest bytea NOT NULL UNIQUE,                        -- SHA-256 of 256 random bits; the token itself is not kept
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz                               -- NULL: until revoked
);

-- A browser that has logged in. It dies with its token.
CREATE TABLE sessions (
    digest bytea PRIMARY KEY,                            -- SHA-256 of the cookie's value
    token_id int REFERENCES tokens ON DELETE CASCADE,    -- NULL: the token of HOOKYARD_ADMIN_TOKEN,
    proof bytea,                                         -- and this is its HMAC under the cookie's value
    expires_at timestamptz NOT NULL,
    CHECK ((token_id IS NULL) = (proof IS NOT NULL))
);
CREATE INDEX sessions_token ON sessions (token_id);

-- What was answered under an Idempotency-Key: the same again gets the same answer, and does nothing.
CREATE TABLE answers (
    digest bytea PRIMARY KEY,                            -- of who asked, and the key
    asked bytea NOT NULL,                                -- SHA-256 of what was asked
    sealed bytea,                                        -- under the key, which is not kept; NULL: not answered yet
    at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX answers_at ON answers (at);
"""

HISTORY = """
-- The last day by the minute, what is not zero: see storage/history.py. Read by subject, or all of a few minutes.
CREATE TABLE history (
    minute timestamptz NOT NULL,                         -- its beginning
    kind text NOT NULL CHECK (kind IN ('system', 'partner', 'destination')),
    name text NOT NULL,
    role text NOT NULL,                                  -- who counted: ingest, worker or jobs
    source text NOT NULL,                                -- which process of it
    figures jsonb NOT NULL,
    PRIMARY KEY (kind, name, minute, role, source)
) PARTITION BY RANGE (minute);
CREATE INDEX history_minute ON history USING brin (minute) WITH (pages_per_range = 16);
CREATE TABLE history_default PARTITION OF history DEFAULT;

-- Partitions of days before yesterday. Waits only so long for readers: behind it whoever wants to write would wait too.
CREATE FUNCTION drop_history() RETURNS int LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
    old text;
    gone int := 0;
BEGIN
    FOR old IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'history'::regclass AND c.relname ~ '^history_[0-9]{8}$'
          AND c.relname < 'history_' || to_char((now() AT TIME ZONE 'UTC')::date - 1, 'YYYYMMDD')
    LOOP
        EXECUTE format('DROP TABLE %I', old);
        gone := gone + 1;
    END LOOP;
    DELETE FROM history_default WHERE minute < now() - interval '2 days';
    RETURN gone;
END $$;
"""

PARTITIONS = """
CREATE TABLE events_default PARTITION OF events DEFAULT;
CREATE TABLE deliveries_default PARTITION OF deliveries DEFAULT;
CREATE TABLE attempts_default PARTITION OF attempts DEFAULT;
ALTER TABLE deliveries_default SET (fillfactor = 70);

-- Makes the daily partitions from yesterday to `ahead` days from now; what exists is left alone. How many are new.
-- A day whose rows already stand in the default partition is left to it.
-- Waits only so long for readers of the parents: behind it whoever wants to write would wait too.
CREATE FUNCTION make_partitions(ahead int) RETURNS int LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
    day date;
    parent text;
    child text;
    made int := 0;
BEGIN
    FOR day IN SELECT (now() AT TIME ZONE 'UTC')::date + n FROM generate_series(-1, ahead) AS n LOOP
        FOREACH parent IN ARRAY ARRAY['events', 'deliveries', 'attempts', 'history'] LOOP
            child := parent || '_' || to_char(day, 'YYYYMMDD');
            CONTINUE WHEN to_regclass(child) IS NOT NULL;
            BEGIN
                EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)', child, parent,
                               day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
                IF parent = 'deliveries' THEN
                    EXECUTE format('ALTER TABLE %I SET (fillfactor = 70)', child);
                END IF;
                made := made + 1;
            EXCEPTION WHEN check_violation OR duplicate_table THEN
                NULL;
            END;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;
SELECT make_partitions(14);
"""


def upgrade() -> None:
    shards = int(context.config.attributes["shards"])
    for block in (
        *(INSTALLATION, CONFIGURATION, TRIGGERS, LOG, DELIVERIES, OWNERSHIP),
        *(PEOPLE, ACCESS, HISTORY, PARTITIONS),
    ):
        op.execute(block)
    op.execute(f"INSERT INTO installation (shards) VALUES ({shards})")
    op.execute(f"INSERT INTO shards (shard) SELECT generate_series(0, {shards - 1})")


def downgrade() -> None:
    raise NotImplementedError("revisions only go forward; restore a backup instead")
