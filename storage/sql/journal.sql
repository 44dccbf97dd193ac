-- Saves one batch of transitions (promises P5 to P9): first outcomes, then claims, in one transaction under the lease.
--
-- The next states were decided by domain/lifecycle.py; here they are compared and set. An outcome counts only for the
-- attempt whose token the delivery carries. A claim counts only if the delivery is still queued, nothing before it in
-- its lane is open or holding, and its destination has a slot, a token of its rate and a breaker that lets it pass: these
-- hold for the whole system, because the destination's gate row is locked (in id order) while they are counted.
--
-- How these functions are planned: once per session, for batches, into index look-ups per row. Without the settings a
-- plan made while today's partition looks empty scans it from end to end for every batch that follows. So no statement
-- here joins two of its own WITH parts row by row; what a later part needs is carried along. And each names the span of
-- time it is about once more, as `oldest` and `newest`: known when it starts, they spare it opening all other partitions,
-- which would cost a small batch more than its work.

CREATE OR REPLACE FUNCTION settle(
    p_partners int[], p_destinations int[], p_seqs bigint[], p_ats timestamptz[], p_tokens uuid[], p_states text[],
    p_failures int[], p_crashes int[], p_retry_ms bigint[], p_reasons text[], p_holding boolean[], p_evidence smallint[],
    p_outcomes text[], p_numbers int[], p_durations int[], p_ages int[], p_statuses int[], p_errors text[], p_notes text[],
    p_answers bytea[]
) RETURNS TABLE (kind text, ord int, result text, number int) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    saved int;
    oldest timestamptz;
    newest timestamptz;
BEGIN
    SELECT min(at), max(at) INTO oldest, newest FROM unnest(p_ats) AS a (at);
    RETURN QUERY
    WITH done AS (
        UPDATE deliveries d
        SET state = o.state, failures = o.failures, crashes = o.crashes, park_reason = o.reason, holding = o.holding,
            attempts = CASE WHEN o.outcome = 'withdrawn' THEN d.attempts - 1 ELSE d.attempts END,
            next_attempt_at = now() + o.retry_ms * interval '1 ms',
            delivered_at = CASE WHEN o.state = 'delivered' THEN now() END
        FROM unnest(
            p_partners, p_destinations, p_seqs, p_ats, p_tokens, p_states::delivery_state[], p_failures, p_crashes, p_retry_ms, p_reasons,
            p_holding, p_evidence, p_outcomes, p_numbers, p_durations, p_ages, p_statuses, p_errors, p_notes, p_answers
        ) WITH ORDINALITY AS o (
            partner_id, destination_id, seq, at, token, state, failures, crashes, retry_ms, reason, holding, evidence, outcome, number,
            duration_ms, age_ms, status, error, note, answer, ord
        )
        WHERE d.partner_id = o.partner_id AND d.destination_id = o.destination_id AND d.seq = o.seq
            AND d.received_at = o.at AND d.received_at BETWEEN oldest AND newest AND d.state = 'delivering' AND d.token = o.token
            AND o.partner_id > 0 AND o.destination_id > 0 AND o.seq > 0 -- always: makes the planner expect few, and look each up
        RETURNING o.ord, o.partner_id, o.destination_id, o.seq, o.at, o.state, o.holding, o.evidence, o.outcome, o.number,
            o.duration_ms, o.age_ms, o.status, o.error, o.note, o.answer, o.reason, d.lane_key, d.replay_id
    ), recorded AS (
        INSERT INTO attempts (partner_id, destination_id, seq, number, received_at, started_at, duration_ms, status, outcome,
                              error, note, answer, replay_id)
        SELECT o.partner_id, o.destination_id, o.seq, o.number, o.at,
               now() - (o.age_ms::bigint + o.duration_ms) * interval '1 ms', o.duration_ms,
               o.status, o.outcome, o.error, o.note, o.answer, o.replay_id
        FROM done o WHERE o.outcome <> 'withdrawn'
    ), caught_up AS (
        DELETE FROM laggards g USING done o
        WHERE o.state <> 'queued' AND NOT o.holding AND g.partner_id = o.partner_id
            AND g.destination_id = o.destination_id AND g.seq = o.seq
    ), set_aside AS (
        INSERT INTO parked (partner_id, destination_id, seq, received_at, reason)
        SELECT o.partner_id, o.destination_id, o.seq, o.at, o.reason FROM done o WHERE o.state = 'parked'
    ), lane AS (
        UPDATE lanes l
        SET in_flight = l.in_flight - n.ended, waiting = l.waiting - n.final, holding = l.holding + n.holding,
            head_seq = CASE WHEN l.head_seq = n.head THEN n.head + 1 ELSE l.head_seq END
        FROM (
            SELECT n.partner_id, n.destination_id, count(*) AS ended, count(*) FILTER (WHERE n.state <> 'queued') AS final,
                   count(*) FILTER (WHERE n.holding) AS holding,
                   max(n.seq) FILTER (WHERE n.lane_key = 0 AND n.state <> 'queued' AND NOT n.holding) AS head
            FROM done n GROUP BY n.partner_id, n.destination_id
        ) n WHERE l.partner_id = n.partner_id AND l.destination_id = n.destination_id
    ), gate AS (
        UPDATE gates g
        SET in_flight = g.in_flight - n.ended,
            failing_since = CASE WHEN n.successes > 0 THEN NULL WHEN n.failures > 0 THEN coalesce(g.failing_since, now())
                                 ELSE g.failing_since END,
            failed_at = CASE WHEN n.failures > 0 THEN now() ELSE g.failed_at END
        FROM (
            SELECT n.destination_id, count(*) AS ended, count(*) FILTER (WHERE n.evidence > 0) AS successes,
                   count(*) FILTER (WHERE n.outcome NOT IN ('success', 'withdrawn', 'interrupted', 'lost', 'crashed')) AS failures
            FROM done n GROUP BY n.destination_id
        ) n WHERE g.destination_id = n.destination_id
    )
    SELECT 'outcome', o.ord::int, 'saved',
           CASE WHEN o.state = 'delivered' AND o.replay_id IS NULL -- accepted to delivered, by the database's clock
               THEN least(2147483647, extract(epoch FROM clock_timestamp() - o.at) * 1000)::int END
    FROM done o;
    GET DIAGNOSTICS saved = ROW_COUNT;
    -- An outcome whose COMMIT went unanswered is sent again: its row carries the token and is no longer delivering.
    IF saved < cardinality(p_partners) THEN
        RETURN QUERY
        SELECT 'outcome', o.ord::int, 'known', NULL::int
        FROM unnest(p_partners, p_destinations, p_seqs, p_ats, p_tokens) WITH ORDINALITY
            AS o (partner_id, destination_id, seq, at, token, ord)
        CROSS JOIN LATERAL (
            SELECT FROM deliveries d
            WHERE d.partner_id = o.partner_id AND d.destination_id = o.destination_id AND d.seq = o.seq
                AND d.received_at = o.at AND d.received_at BETWEEN oldest AND newest AND d.token = o.token OFFSET 0
        ) d;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION claim(
    p_token uuid,
    p_partners int[], p_destinations int[], p_seqs bigint[], p_ats timestamptz[], p_tokens uuid[], p_budgets int[]
) RETURNS TABLE (kind text, ord int, result text, number int) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    opened timestamptz;
    oldest timestamptz;
    newest timestamptz;
BEGIN
    SELECT min(l.head_at), min(w.at), max(w.at) INTO opened, oldest, newest
    FROM unnest(p_partners, p_destinations, p_ats) AS w (partner_id, destination_id, at)
    JOIN lanes l ON l.partner_id = w.partner_id AND l.destination_id = w.destination_id;
    RETURN QUERY
    WITH judged AS MATERIALIZED (
        SELECT w.*, d.lane_key, d.attempts, g.in_flight, c.concurrency,
               CASE WHEN c.rate IS NOT NULL THEN -- a bucket of one second's worth, at least one attempt
                   least(greatest(c.rate, 1), coalesce(g.tokens, greatest(c.rate, 1)) + c.rate
                         * CASE WHEN g.refilled_at > clock_timestamp() THEN 1 -- a clock that was set back: one second's worth
                                ELSE extract(epoch FROM clock_timestamp() - coalesce(g.refilled_at, now()))::float8 END) END AS tokens,
               CASE WHEN d.state = 'delivering' AND d.token = w.token THEN 'again'
                    WHEN d.state <> 'queued' THEN 'stale'
                    WHEN c.state <> 'active' OR c.removed_at IS NOT NULL OR p.state <> 'active' THEN 'held'
                    WHEN s.owner IS DISTINCT FROM p_token THEN 'stale'
                    WHEN g.breaker = 'open' OR (g.breaker = 'half_open' AND g.probe_token <> w.token) THEN 'breaker'
                    WHEN d.lane_key = 0 AND (l.in_flight > 0 OR EXISTS (
                        SELECT 1 FROM laggards x
                        WHERE x.partner_id = w.partner_id AND x.destination_id = w.destination_id AND x.seq < w.seq
                    ) OR (l.head_seq < w.seq AND EXISTS (
                        SELECT 1 FROM deliveries x
                        WHERE x.partner_id = w.partner_id AND x.destination_id = w.destination_id
                            AND x.seq >= l.head_seq AND x.seq < w.seq AND x.received_at BETWEEN opened AND newest
                            AND (x.state IN ('queued', 'delivering') OR x.holding)
                    ))) THEN 'order'
                    WHEN d.lane_key <> 0 AND EXISTS (
                        SELECT 1 FROM laggards x
                        WHERE x.partner_id = w.partner_id AND x.destination_id = w.destination_id
                            AND x.lane_key = d.lane_key AND x.seq < w.seq
                    ) THEN 'order'
                    WHEN d.lane_key <> 0 AND l.head_seq < w.seq AND EXISTS (
                        SELECT 1 FROM deliveries x
                        WHERE x.partner_id = w.partner_id AND x.destination_id = w.destination_id
                            AND x.lane_key = d.lane_key AND x.lane_key <> 0
                            AND x.seq >= l.head_seq AND x.seq < w.seq AND x.received_at BETWEEN opened AND newest
                            AND (x.state IN ('queued', 'delivering') OR x.holding)
                    ) THEN 'order'
               END AS refusal
        FROM unnest(p_partners, p_destinations, p_seqs, p_ats, p_tokens, p_budgets) WITH ORDINALITY
            AS w (partner_id, destination_id, seq, at, token, budget_ms, ord)
        CROSS JOIN LATERAL ( -- OFFSET 0: by its whole key, whatever order the joins below are planned in
            SELECT d.state, d.token, d.lane_key, d.attempts FROM deliveries d
            WHERE d.partner_id = w.partner_id AND d.destination_id = w.destination_id AND d.seq = w.seq
                AND d.received_at = w.at AND d.received_at BETWEEN oldest AND newest OFFSET 0
        ) d
        JOIN gates g ON g.destination_id = w.destination_id
        JOIN destinations c ON c.id = w.destination_id
        JOIN lanes l ON l.partner_id = w.partner_id AND l.destination_id = w.destination_id
        JOIN partners p ON p.id = w.partner_id
        JOIN shards s ON s.shard = p.shard
    ), chosen AS MATERIALIZED (
        SELECT j.*, CASE WHEN j.lane_key IS NOT NULL AND j.place > 1 THEN 'order'
                         WHEN j.in_flight + j.n > j.concurrency THEN 'full'
                         WHEN j.n > j.tokens THEN 'rate' END AS refused
        FROM (
            SELECT j.*, row_number() OVER (PARTITION BY j.destination_id ORDER BY j.ord) AS n,
                   row_number() OVER (PARTITION BY j.partner_id, j.destination_id, j.lane_key ORDER BY j.seq) AS place
            FROM judged j WHERE j.refusal IS NULL
        ) j
    ), begun AS (
        UPDATE deliveries d
        SET state = 'delivering', attempts = d.attempts + 1, token = c.token, budget_ms = c.budget_ms, next_attempt_at = NULL
        FROM chosen c
        WHERE c.refused IS NULL AND d.partner_id = c.partner_id AND d.destination_id = c.destination_id AND d.seq = c.seq
            AND d.received_at = c.at AND d.received_at BETWEEN oldest AND newest AND d.state = 'queued'
        RETURNING c.ord, c.partner_id, c.destination_id, c.seq, c.at, c.lane_key, c.tokens, d.attempts
    ), lane AS (
        UPDATE lanes l
        SET in_flight = l.in_flight + b.n,
            head_seq = CASE WHEN b.head > l.head_seq THEN b.head ELSE l.head_seq END,
            head_at = CASE WHEN b.head > l.head_seq THEN b.head_at ELSE l.head_at END
        FROM (
            SELECT b.partner_id, b.destination_id, count(*) AS n, min(b.seq) FILTER (WHERE b.lane_key = 0) AS head,
                   min(b.at) FILTER (WHERE b.lane_key = 0) AS head_at
            FROM begun b GROUP BY b.partner_id, b.destination_id
        ) b WHERE l.partner_id = b.partner_id AND l.destination_id = b.destination_id
    ), gate AS (
        UPDATE gates g
        SET in_flight = g.in_flight + b.n, tokens = b.tokens - b.n,
            refilled_at = CASE WHEN b.tokens IS NULL THEN NULL ELSE clock_timestamp() END
        FROM (SELECT b.destination_id, count(*) AS n, max(b.tokens) AS tokens FROM begun b GROUP BY b.destination_id) b
        WHERE g.destination_id = b.destination_id
    )
    SELECT 'claim', b.ord::int, 'begun', b.attempts FROM begun b
    UNION ALL
    SELECT 'claim', j.ord::int, CASE j.refusal WHEN 'again' THEN 'begun' ELSE j.refusal END, j.attempts
    FROM judged j WHERE j.refusal IS NOT NULL
    UNION ALL
    SELECT 'claim', c.ord::int, c.refused, c.attempts FROM chosen c WHERE c.refused IS NOT NULL;
END $$;

-- What is not answered is lost (an outcome) or stale (a claim): somebody else has moved the delivery.
CREATE OR REPLACE FUNCTION journal(
    p_token uuid,
    p_partners int[], p_destinations int[], p_seqs bigint[], p_ats timestamptz[], p_tokens uuid[], p_states text[],
    p_failures int[], p_crashes int[], p_retry_ms bigint[], p_reasons text[], p_holding boolean[], p_evidence smallint[],
    p_outcomes text[], p_numbers int[], p_durations int[], p_ages int[], p_statuses int[], p_errors text[], p_notes text[],
    p_answers bytea[],
    c_partners int[], c_destinations int[], c_seqs bigint[], c_ats timestamptz[], c_tokens uuid[], c_budgets int[]
) RETURNS TABLE (kind text, ord int, result text, number int) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hold_lease(p_token);
    PERFORM 1 FROM gates g WHERE g.destination_id = ANY (p_destinations || c_destinations)
    ORDER BY g.destination_id FOR NO KEY UPDATE;
    PERFORM lock_lanes(p_partners || c_partners, p_destinations || c_destinations);
    IF cardinality(p_partners) > 0 THEN
        RETURN QUERY SELECT * FROM settle(
            p_partners, p_destinations, p_seqs, p_ats, p_tokens, p_states, p_failures, p_crashes, p_retry_ms, p_reasons,
            p_holding, p_evidence, p_outcomes, p_numbers, p_durations, p_ages, p_statuses, p_errors, p_notes, p_answers);
    END IF;
    IF cardinality(c_partners) > 0 THEN
        RETURN QUERY SELECT * FROM claim(p_token, c_partners, c_destinations, c_seqs, c_ats, c_tokens, c_budgets);
    END IF;
END $$;
