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
    attempts int, failures int, due_ms bigint, token uuid, budget_ms int, replay_id bigint, holding boolean
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT l.partner_id, l.destination_id, l.tail_seq, d.seq, d.received_at, d.state::text, d.lane_key, d.attempts, d.failures,
           greatest(0, ceil(extract(epoch FROM d.next_attempt_at - clock_timestamp()) * 1000))::bigint,
           d.token, d.budget_ms, d.replay_id, d.holding
    FROM unnest(p_partners, p_destinations, p_afters) AS w (partner_id, destination_id, after)
    JOIN lanes l ON l.partner_id = w.partner_id AND l.destination_id = w.destination_id
    JOIN partner_tails t ON t.partner_id = l.partner_id
    LEFT JOIN LATERAL (
        SELECT d.* FROM deliveries d
        WHERE d.partner_id = l.partner_id AND d.destination_id = l.destination_id
            AND d.seq >= greatest(l.head_seq, w.after + 1) AND d.received_at BETWEEN l.head_at AND t.cursor_at
            AND (d.state IN ('queued', 'delivering') OR d.holding)
        ORDER BY d.seq LIMIT p_limit
    ) d ON true
    ORDER BY l.partner_id, l.destination_id, d.seq;
END $$;

-- Every attempt in flight in these lanes, however far from their heads.
CREATE OR REPLACE FUNCTION read_flying(p_partners int[], p_destinations int[])
RETURNS TABLE (
    partner_id int, destination_id int, seq bigint, received_at timestamptz, state text, lane_key bigint, attempts int,
    failures int, due_ms bigint, token uuid, budget_ms int, replay_id bigint, holding boolean
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT l.partner_id, l.destination_id, d.seq, d.received_at, d.state::text, d.lane_key, d.attempts, d.failures, NULL::bigint,
           d.token, d.budget_ms, d.replay_id, d.holding
    FROM unnest(p_partners, p_destinations) AS w (partner_id, destination_id)
    JOIN lanes l ON l.partner_id = w.partner_id AND l.destination_id = w.destination_id AND l.in_flight > 0
    JOIN partner_tails t ON t.partner_id = l.partner_id
    CROSS JOIN LATERAL (
        SELECT d.* FROM deliveries d
        WHERE d.partner_id = l.partner_id AND d.destination_id = l.destination_id
            AND d.seq >= l.head_seq AND d.received_at BETWEEN l.head_at AND t.cursor_at AND d.state = 'delivering'
        ORDER BY d.seq LIMIT l.in_flight
    ) d
    ORDER BY l.partner_id, l.destination_id, d.seq;
END $$;

-- The first two deliveries that each key of these lanes has open (or holding) from a sequence on.
CREATE OR REPLACE FUNCTION read_keys(p_partners int[], p_destinations int[], p_keys bigint[], p_sinces bigint[])
RETURNS TABLE (
    partner_id int, destination_id int, seq bigint, received_at timestamptz, state text, lane_key bigint, attempts int,
    failures int, due_ms bigint, token uuid, budget_ms int, replay_id bigint, holding boolean
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT l.partner_id, l.destination_id, d.seq, d.received_at, d.state::text, d.lane_key, d.attempts, d.failures,
           greatest(0, ceil(extract(epoch FROM d.next_attempt_at - clock_timestamp()) * 1000))::bigint,
           d.token, d.budget_ms, d.replay_id, d.holding
    FROM unnest(p_partners, p_destinations, p_keys, p_sinces) AS w (partner_id, destination_id, key, since)
    JOIN lanes l ON l.partner_id = w.partner_id AND l.destination_id = w.destination_id
    JOIN partner_tails t ON t.partner_id = l.partner_id
    CROSS JOIN LATERAL (
        SELECT d.* FROM deliveries d
        WHERE d.partner_id = l.partner_id AND d.destination_id = l.destination_id
            AND d.lane_key = w.key AND d.lane_key <> 0
            AND d.seq >= w.since AND d.received_at BETWEEN l.head_at AND t.cursor_at
            AND (d.state IN ('queued', 'delivering') OR d.holding)
        ORDER BY d.seq LIMIT 2
    ) d
    ORDER BY l.partner_id, l.destination_id, d.seq;
END $$;

-- The events of deliveries whose copy is not at hand.
CREATE OR REPLACE FUNCTION read_events(p_partners int[], p_seqs bigint[], p_ats timestamptz[])
RETURNS TABLE (partner_id int, seq bigint, type text, headers bytea, body bytea) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT e.partner_id, e.seq, e.type, e.headers, e.body
    FROM unnest(p_partners, p_seqs, p_ats) AS w (partner_id, seq, at)
    JOIN events e ON e.partner_id = w.partner_id AND e.seq = w.seq AND e.received_at = w.at;
END $$;

-- Where deliveries of a lane overtake each other nobody knows in passing below which sequence nothing is open: it is
-- looked up now and then, so that reading on does not go over all that was delivered since.
CREATE OR REPLACE FUNCTION advance_heads(p_token uuid, p_partners int[], p_destinations int[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    PERFORM hold_lease(p_token);
    PERFORM lock_lanes(p_partners, p_destinations);
    UPDATE lanes l SET head_seq = f.seq, head_at = f.received_at
    FROM unnest(p_partners, p_destinations) AS w (partner_id, destination_id)
    CROSS JOIN LATERAL (
        SELECT d.seq, d.received_at FROM lanes m
        JOIN partner_tails t ON t.partner_id = m.partner_id
        JOIN deliveries d ON d.partner_id = m.partner_id AND d.destination_id = m.destination_id
            AND d.seq >= m.head_seq AND d.received_at BETWEEN m.head_at AND t.cursor_at
        WHERE m.partner_id = w.partner_id AND m.destination_id = w.destination_id
            AND (d.state IN ('queued', 'delivering') OR d.holding)
        ORDER BY d.seq LIMIT 1
    ) f
    WHERE l.partner_id = w.partner_id AND l.destination_id = w.destination_id AND l.head_seq < f.seq;
END $$;
