-- What an owner reads of its lanes, and the locks that everybody takes who changes them. Planned as journal.sql says.

-- Locks these lanes in their order until the end of the transaction.
CREATE OR REPLACE FUNCTION lock_lanes(p_partners int[], p_destinations int[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    PERFORM 1 FROM (SELECT DISTINCT * FROM unnest(p_partners, p_destinations)) AS k (partner_id, destination_id)
    JOIN lanes l ON l.partner_id = k.partner_id AND l.destination_id = k.destination_id
    ORDER BY l.partner_id, l.destination_id FOR NO KEY UPDATE OF l;
END $$;

-- What lanes have open from a position on, in order, at most p_limit each; one row at least per lane that exists, with
-- the last sequence dispatched to it as of the same snapshot.
CREATE OR REPLACE FUNCTION read_lanes(p_partners int[], p_destinations int[], p_afters bigint[], p_limit int)
RETURNS TABLE (
    partner_id int, destination_id int, tail_seq bigint, seq bigint, received_at timestamptz, state text, lane_key bigint,
    attempts int, failures int, due_ms bigint, token uuid, budget_ms int, replay_id bigint, holding boolean, crashes int
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    oldest timestamptz;
    newest timestamptz;
BEGIN
    SELECT min(l.head_at), max(h.last_at) INTO oldest, newest
    FROM unnest(p_partners, p_destinations) AS w (partner_id, destination_id)
    JOIN lanes l ON l.partner_id = w.partner_id AND l.destination_id = w.destination_id
    JOIN partner_heads h ON h.partner_id = l.partner_id;
    RETURN QUERY
    SELECT l.partner_id, l.destination_id, l.tail_seq, d.seq, d.received_at, d.state::text, d.lane_key, d.attempts, d.failures,
           greatest(0, ceil(extract(epoch FROM d.next_attempt_at - clock_timestamp()) * 1000))::bigint,
           d.token, d.budget_ms, d.replay_id, d.holding, d.crashes
    FROM unnest(p_partners, p_destinations, p_afters) AS w (partner_id, destination_id, after)
    JOIN lanes l ON l.partner_id = w.partner_id AND l.destination_id = w.destination_id
    LEFT JOIN LATERAL (
        (SELECT d.* FROM laggards g
            JOIN deliveries d ON d.partner_id = g.partner_id AND d.destination_id = g.destination_id AND d.seq = g.seq
                AND d.received_at = g.received_at
            WHERE g.partner_id = l.partner_id AND g.destination_id = l.destination_id AND g.seq > w.after
            ORDER BY g.seq LIMIT p_limit)
        UNION ALL
        (SELECT d.* FROM deliveries d
            WHERE d.partner_id = l.partner_id AND d.destination_id = l.destination_id
                AND d.seq >= greatest(l.head_seq, w.after + 1) AND d.received_at BETWEEN oldest AND newest
                AND (d.state IN ('queued', 'delivering') OR d.holding)
            ORDER BY d.seq LIMIT p_limit)
        ORDER BY seq LIMIT p_limit
    ) d ON true
    ORDER BY l.partner_id, l.destination_id, d.seq;
END $$;

-- Every attempt in flight in these lanes, however far from their heads.
CREATE OR REPLACE FUNCTION read_flying(p_partners int[], p_destinations int[])
RETURNS TABLE (
    partner_id int, destination_id int, seq bigint, received_at timestamptz, state text, lane_key bigint, attempts int,
    failures int, due_ms bigint, token uuid, budget_ms int, replay_id bigint, holding boolean, crashes int
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    oldest timestamptz;
    newest timestamptz;
BEGIN
    SELECT min(l.head_at), max(h.last_at) INTO oldest, newest
    FROM unnest(p_partners, p_destinations) AS w (partner_id, destination_id)
    JOIN lanes l ON l.partner_id = w.partner_id AND l.destination_id = w.destination_id
    JOIN partner_heads h ON h.partner_id = l.partner_id;
    RETURN QUERY
    SELECT l.partner_id, l.destination_id, d.seq, d.received_at, d.state::text, d.lane_key, d.attempts, d.failures, NULL::bigint,
           d.token, d.budget_ms, d.replay_id, d.holding, d.crashes
    FROM unnest(p_partners, p_destinations) AS w (partner_id, destination_id)
    JOIN lanes l ON l.partner_id = w.partner_id AND l.destination_id = w.destination_id AND l.in_flight > 0
    CROSS JOIN LATERAL (
        (SELECT d.* FROM laggards g
            JOIN deliveries d ON d.partner_id = g.partner_id AND d.destination_id = g.destination_id AND d.seq = g.seq
                AND d.received_at = g.received_at
            WHERE g.partner_id = l.partner_id AND g.destination_id = l.destination_id AND d.state = 'delivering')
        UNION ALL
        (SELECT d.* FROM deliveries d
            WHERE d.partner_id = l.partner_id AND d.destination_id = l.destination_id
                AND d.seq >= l.head_seq AND d.received_at BETWEEN oldest AND newest AND d.state = 'delivering'
            ORDER BY d.seq LIMIT l.in_flight)
    ) d
    ORDER BY l.partner_id, l.destination_id, d.seq;
END $$;

-- The first two deliveries that each key of these lanes has open (or holding) from a sequence on.
CREATE OR REPLACE FUNCTION read_keys(p_partners int[], p_destinations int[], p_keys bigint[], p_sinces bigint[])
RETURNS TABLE (
    partner_id int, destination_id int, seq bigint, received_at timestamptz, state text, lane_key bigint, attempts int,
    failures int, due_ms bigint, token uuid, budget_ms int, replay_id bigint, holding boolean, crashes int
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    oldest timestamptz;
    newest timestamptz;
BEGIN
    SELECT min(l.head_at), max(h.last_at) INTO oldest, newest
    FROM unnest(p_partners, p_destinations) AS w (partner_id, destination_id)
    JOIN lanes l ON l.partner_id = w.partner_id AND l.destination_id = w.destination_id
    JOIN partner_heads h ON h.partner_id = l.partner_id;
    RETURN QUERY
    SELECT l.partner_id, l.destination_id, d.seq, d.received_at, d.state::text, d.lane_key, d.attempts, d.failures,
           greatest(0, ceil(extract(epoch FROM d.next_attempt_at - clock_timestamp()) * 1000))::bigint,
           d.token, d.budget_ms, d.replay_id, d.holding, d.crashes
    FROM unnest(p_partners, p_destinations, p_keys, p_sinces) AS w (partner_id, destination_id, key, since)
    JOIN lanes l ON l.partner_id = w.partner_id AND l.destination_id = w.destination_id
    CROSS JOIN LATERAL (
        (SELECT d.* FROM laggards g
            JOIN deliveries d ON d.partner_id = g.partner_id AND d.destination_id = g.destination_id AND d.seq = g.seq
                AND d.received_at = g.received_at
            WHERE g.partner_id = l.partner_id AND g.destination_id = l.destination_id AND g.lane_key = w.key
                AND g.seq >= w.since
            ORDER BY g.seq LIMIT 2)
        UNION ALL
        (SELECT d.* FROM deliveries d
            WHERE d.partner_id = l.partner_id AND d.destination_id = l.destination_id
                AND d.lane_key = w.key AND d.lane_key <> 0
                AND d.seq >= greatest(l.head_seq, w.since) AND d.received_at BETWEEN oldest AND newest
                AND (d.state IN ('queued', 'delivering') OR d.holding)
            ORDER BY d.seq LIMIT 2)
        ORDER BY seq LIMIT 2
    ) d
    ORDER BY l.partner_id, l.destination_id, d.seq;
END $$;

-- The events of deliveries whose copy is not at hand, in the order asked for, as many as p_bytes of bodies allow and one
-- at least: beyond that the body is NULL, and is to be asked for again.
CREATE OR REPLACE FUNCTION read_events(p_partners int[], p_seqs bigint[], p_ats timestamptz[], p_bytes bigint)
RETURNS TABLE (partner_id int, seq bigint, type text, headers bytea, body bytea) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    oldest timestamptz;
    newest timestamptz;
BEGIN
    SELECT min(at), max(at) INTO oldest, newest FROM unnest(p_ats) AS a (at);
    RETURN QUERY
    SELECT e.partner_id, e.seq, e.type, e.headers,
           CASE WHEN sum(octet_length(e.body)) OVER (ORDER BY w.ord) - octet_length(e.body) < p_bytes THEN e.body END
    FROM unnest(p_partners, p_seqs, p_ats) WITH ORDINALITY AS w (partner_id, seq, at, ord)
    CROSS JOIN LATERAL (
        SELECT e.* FROM events e
        WHERE e.partner_id = w.partner_id AND e.seq = w.seq AND e.received_at = w.at
            AND e.received_at BETWEEN oldest AND newest OFFSET 0
    ) e;
END $$;

-- A lane's first open delivery, or with p_holding its first that is open or holds it.
CREATE OR REPLACE FUNCTION first_open(p_partner int, p_destination int, p_holding boolean) RETURNS SETOF deliveries
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    head bigint;
    oldest timestamptz;
    newest timestamptz;
BEGIN
    SELECT l.head_seq, l.head_at, h.last_at INTO head, oldest, newest
    FROM lanes l JOIN partner_heads h ON h.partner_id = l.partner_id
    WHERE l.partner_id = p_partner AND l.destination_id = p_destination;
    RETURN QUERY
    (SELECT d.* FROM laggards g
        JOIN deliveries d ON d.partner_id = g.partner_id AND d.destination_id = g.destination_id AND d.seq = g.seq
            AND d.received_at = g.received_at
        WHERE g.partner_id = p_partner AND g.destination_id = p_destination AND (p_holding OR NOT d.holding)
        ORDER BY g.seq LIMIT 1)
    UNION ALL
    (SELECT d.* FROM deliveries d
        WHERE d.partner_id = p_partner AND d.destination_id = p_destination AND d.seq >= head
            AND d.received_at BETWEEN oldest AND newest
            AND (d.state IN ('queued', 'delivering') OR (d.holding AND p_holding))
        ORDER BY d.seq LIMIT 1)
    ORDER BY seq LIMIT 1;
END $$;

-- Where deliveries of a lane overtake each other its head stays behind the eldest open one. Now and then the eldest are
-- entered as laggards and the head goes on, so that reading on does not go over all that was delivered since.
CREATE OR REPLACE FUNCTION advance_heads(p_token uuid, p_partners int[], p_destinations int[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    at_once CONSTANT int := 100;
BEGIN
    PERFORM hold_lease(p_token);
    PERFORM lock_lanes(p_partners, p_destinations);
    WITH opened AS MATERIALIZED (
        SELECT l.partner_id, l.destination_id, d.seq, d.received_at, d.lane_key, d.n
        FROM unnest(p_partners, p_destinations) AS w (partner_id, destination_id)
        JOIN lanes l ON l.partner_id = w.partner_id AND l.destination_id = w.destination_id
        JOIN partner_heads h ON h.partner_id = l.partner_id
        CROSS JOIN LATERAL (
            SELECT d.seq, d.received_at, d.lane_key, row_number() OVER (ORDER BY d.seq) AS n FROM (
                SELECT d.seq, d.received_at, d.lane_key FROM deliveries d
                WHERE d.partner_id = l.partner_id AND d.destination_id = l.destination_id
                    AND d.seq >= l.head_seq AND d.received_at BETWEEN l.head_at AND h.last_at
                    AND (d.state IN ('queued', 'delivering') OR d.holding)
                ORDER BY d.seq LIMIT at_once + 1
            ) d
        ) d
    ), lagging AS (
        INSERT INTO laggards (partner_id, destination_id, seq, received_at, lane_key)
        SELECT o.partner_id, o.destination_id, o.seq, o.received_at, o.lane_key FROM opened o WHERE o.n <= at_once
    )
    UPDATE lanes l SET head_seq = coalesce(o.next, l.tail_seq + 1), head_at = o.at
    FROM (
        SELECT o.partner_id, o.destination_id, max(o.received_at) AS at, max(o.seq) FILTER (WHERE o.n > at_once) AS next
        FROM opened o GROUP BY o.partner_id, o.destination_id
    ) o WHERE l.partner_id = o.partner_id AND l.destination_id = o.destination_id;
END $$;

-- Deliveries that are open again take their place in their lanes: before the head as laggards. The lanes are locked.
CREATE OR REPLACE FUNCTION line_up_again(p_partners int[], p_destinations int[], p_seqs bigint[], p_ats timestamptz[])
RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    INSERT INTO laggards (partner_id, destination_id, seq, received_at, lane_key)
    SELECT d.partner_id, d.destination_id, d.seq, d.received_at, d.lane_key
    FROM unnest(p_partners, p_destinations, p_seqs, p_ats) AS w (partner_id, destination_id, seq, at)
    JOIN lanes l ON l.partner_id = w.partner_id AND l.destination_id = w.destination_id AND w.seq < l.head_seq
    JOIN deliveries d ON d.partner_id = w.partner_id AND d.destination_id = w.destination_id AND d.seq = w.seq
        AND d.received_at = w.at AND (d.state IN ('queued', 'delivering') OR d.holding)
    ON CONFLICT DO NOTHING;
END $$;
