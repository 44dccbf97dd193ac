-- Hands the log on to the lanes (promise P4): the deliveries of the next events and the cursor move in one transaction.
--
-- For each partner up to p_limit events beyond its cursor. Subscribers are those of the moment of acceptance: a
-- subscription's version counts for the sequences it holds (P16). What cannot wait in its lane is parked at once: its
-- destination is removed, suspended, or down with a full lane. An event per row; `lanes` are the destinations where it
-- is queued now, `previous` the sequence dispatched before it to each, `lane_keys` how it is ordered there. The event's
-- headers and body come along only where p_copies says so, and no more than p_bytes of bodies in all.
CREATE OR REPLACE FUNCTION dispatch(p_token uuid, p_partners int[], p_copies boolean[], p_limit int, p_bytes bigint)
RETURNS TABLE (
    partner_id int, seq bigint, received_at timestamptz, type text, headers bytea, body bytea,
    lanes int[], previous bigint[], lane_keys bigint[]
) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    oldest timestamptz;
    newest timestamptz;
BEGIN
    PERFORM hold_lease(p_token);
    PERFORM 1 FROM partner_tails t
    WHERE t.partner_id = ANY (p_partners) ORDER BY t.partner_id FOR NO KEY UPDATE;
    PERFORM 1 FROM lanes l
    WHERE l.partner_id = ANY (p_partners) ORDER BY l.partner_id, l.destination_id FOR NO KEY UPDATE;
    SELECT min(t.cursor_at), max(h.last_at) INTO oldest, newest
    FROM partner_tails t JOIN partner_heads h ON h.partner_id = t.partner_id WHERE t.partner_id = ANY (p_partners);
    RETURN QUERY
    WITH chosen AS MATERIALIZED (
        SELECT t.partner_id, t.cursor, t.cursor_at, h.last_at, c.copies
        FROM unnest(p_partners, p_copies) AS c (partner_id, copies)
        JOIN partner_tails t ON t.partner_id = c.partner_id
        JOIN partner_heads h ON h.partner_id = c.partner_id
        JOIN partners p ON p.id = t.partner_id
        JOIN shards s ON s.shard = p.shard AND s.owner = p_token
    ), log AS MATERIALIZED (
        SELECT c.partner_id, e.seq, e.received_at, e.type, e.order_key, e.headers,
               CASE WHEN c.copies AND sum(octet_length(e.body)) OVER (ORDER BY c.partner_id, e.seq) <= p_bytes
                   THEN e.body END AS body
        FROM chosen c CROSS JOIN LATERAL (
            SELECT e.seq, e.received_at, e.type, e.order_key, e.headers, e.body
            FROM events e
            WHERE e.partner_id = c.partner_id AND e.seq > c.cursor AND e.received_at BETWEEN c.cursor_at AND c.last_at
                AND e.received_at BETWEEN oldest AND newest
            ORDER BY e.seq LIMIT p_limit
        ) e
    ), owed AS MATERIALIZED (
        SELECT g.partner_id, g.seq, g.received_at, s.destination_id,
               CASE s.ordering WHEN 'partner' THEN 0 WHEN 'key' THEN coalesce(g.order_key, -1) END AS lane_key,
               lag(g.seq, 1, l.tail_seq) OVER lane AS previous,
               CASE WHEN d.removed_at IS NOT NULL THEN 'destination_removed'
                    WHEN d.state = 'suspended' THEN 'destination_suspended'
                    WHEN (g2.breaker <> 'closed' OR d.state <> 'active') AND l.waiting + row_number() OVER lane > s.max_waiting THEN 'lane_full'
               END AS park_reason
        FROM log g
        JOIN subscriptions s ON s.partner_id = g.partner_id AND g.seq >= s.from_seq
            AND (s.until_seq IS NULL OR g.seq < s.until_seq) AND (s.pattern IS NULL OR g.type ~ s.pattern)
        JOIN destinations d ON d.id = s.destination_id
        JOIN gates g2 ON g2.destination_id = s.destination_id
        JOIN lanes l ON l.partner_id = g.partner_id AND l.destination_id = s.destination_id
        WINDOW lane AS (PARTITION BY g.partner_id, s.destination_id ORDER BY g.seq)
    ), made AS (
        INSERT INTO deliveries (partner_id, destination_id, seq, received_at, state, lane_key, park_reason)
        SELECT o.partner_id, o.destination_id, o.seq, o.received_at,
               CASE WHEN o.park_reason IS NULL THEN 'queued' ELSE 'parked' END::delivery_state, o.lane_key, o.park_reason
        FROM owed o
    ), set_aside AS (
        INSERT INTO parked (partner_id, destination_id, seq, received_at, reason)
        SELECT o.partner_id, o.destination_id, o.seq, o.received_at, o.park_reason FROM owed o
        WHERE o.park_reason IS NOT NULL
    ), lengthened AS (
        UPDATE lanes l
        SET waiting = l.waiting + o.n, tail_seq = o.last,
            head_seq = CASE WHEN l.waiting = 0 AND l.holding = 0 AND o.n > 0 THEN o.first ELSE l.head_seq END,
            head_at = CASE WHEN l.waiting = 0 AND l.holding = 0 AND o.n > 0 THEN o.first_at ELSE l.head_at END
        FROM (
            SELECT o.partner_id, o.destination_id, count(*) FILTER (WHERE o.park_reason IS NULL) AS n, max(o.seq) AS last,
                   min(o.seq) FILTER (WHERE o.park_reason IS NULL) AS first,
                   min(o.received_at) FILTER (WHERE o.park_reason IS NULL) AS first_at
            FROM owed o GROUP BY o.partner_id, o.destination_id
        ) o WHERE l.partner_id = o.partner_id AND l.destination_id = o.destination_id
    ), moved AS (
        UPDATE partner_tails t SET cursor = g.last, cursor_at = g.last_at
        FROM (SELECT g.partner_id, max(g.seq) AS last, max(g.received_at) AS last_at FROM log g GROUP BY g.partner_id) g
        WHERE t.partner_id = g.partner_id
    )
    SELECT g.partner_id, g.seq, g.received_at, g.type, CASE WHEN g.body IS NOT NULL THEN g.headers END, g.body, o.lanes, o.previous, o.lane_keys
    FROM log g LEFT JOIN (
        SELECT o.partner_id, o.seq, array_agg(o.destination_id ORDER BY o.destination_id) AS lanes,
               array_agg(o.previous ORDER BY o.destination_id) AS previous,
               array_agg(o.lane_key ORDER BY o.destination_id) AS lane_keys
        FROM owed o WHERE o.park_reason IS NULL GROUP BY o.partner_id, o.seq
    ) o ON o.partner_id = g.partner_id AND o.seq = g.seq
    ORDER BY g.partner_id, g.seq;
END $$;
