-- Stores one batch of arrivals and answers each, in one call and one transaction (promises P1, P2, P3).
--
-- First the partners' head rows are locked in id order; only then, by a later statement with a fresh snapshot, are
-- repeats taken out, the survivors numbered and stored. So numbers have no gaps and commit in their order, and of
-- equal dedupe values one wins, whichever process it came through.
--
-- Per arrival, in the order given: status ('stored', 'repeat', 'backlog_full', 'rate_limited', 'unknown_partner'), the
-- event's seq and received_at, whether a repeat came with other bytes, and after how many seconds a refused one may return.
CREATE OR REPLACE FUNCTION accept(
    p_partners int[], p_digests bytea[], p_types text[], p_keys bigint[], p_headers bytea[], p_queries bytea[],
    p_bodies bytea[], p_window interval
) RETURNS TABLE (ord int, status text, seq bigint, received_at timestamptz, conflict boolean, retry_after int)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz;
BEGIN
    PERFORM 1 FROM partner_heads h WHERE h.partner_id = ANY (p_partners) ORDER BY h.partner_id FOR NO KEY UPDATE;
    moment := date_trunc('milliseconds', clock_timestamp());
    RETURN QUERY
    WITH arrival AS MATERIALIZED (
        SELECT a.ord::int, a.partner_id, a.digest,
               min(a.ord::int) OVER (PARTITION BY a.partner_id, coalesce(a.digest, int8send(a.ord))) AS leader
        FROM unnest(p_partners, p_digests) WITH ORDINALITY AS a (partner_id, digest, ord)
    ), head AS MATERIALIZED (
        SELECT h.partner_id, h.last_seq, p.on_backlog_full, p.max_backlog, p.rate, t.drain_per_second,
               greatest(moment, h.last_at) AS at,
               h.last_seq - t.cursor + coalesce(l.live, l.every, 0) AS backlog,
               CASE WHEN p.rate IS NOT NULL THEN -- a bucket of one second's worth, at least one event
                   least(greatest(p.rate, 1), coalesce(h.tokens, greatest(p.rate, 1)) + p.rate
                         * greatest(0, extract(epoch FROM moment - coalesce(h.refilled_at, moment))::float8)) END AS tokens
        FROM partner_heads h
        JOIN partners p ON p.id = h.partner_id AND p.removed_at IS NULL
        JOIN partner_tails t ON t.partner_id = h.partner_id
        CROSS JOIN LATERAL (
            -- The longest lane counts; lanes of destinations that are down only if all of them are.
            SELECT max(l.waiting) AS every,
                   max(l.waiting) FILTER (WHERE d.state = 'active' AND g.breaker = 'closed') AS live
            FROM lanes l JOIN destinations d ON d.id = l.destination_id JOIN gates g ON g.destination_id = l.destination_id
            WHERE l.partner_id = h.partner_id AND (l.active OR l.waiting > 0)
        ) l
        WHERE h.partner_id = ANY (p_partners)
    ), known AS MATERIALIZED (
        SELECT a.ord, d.ctid AS row, d.seq, d.received_at
        FROM arrival a CROSS JOIN LATERAL ( -- OFFSET 0: a look-up per arrival, however small the table seemed when planned
            SELECT d.ctid, d.seq, d.received_at FROM dedupe d
            WHERE d.partner_id = a.partner_id AND d.digest = a.digest OFFSET 0
        ) d WHERE d.received_at > moment - p_window
    ), fresh AS MATERIALIZED (
        SELECT a.ord, a.partner_id, a.digest, h.at, h.last_seq + n AS seq,
               CASE WHEN n > h.tokens THEN 'rate_limited'
                    WHEN h.on_backlog_full = 'reject' AND h.backlog + n > h.max_backlog THEN 'backlog_full'
                    ELSE 'stored' END AS status,
               CASE WHEN n > h.tokens THEN least(60, ceil((n - h.tokens) / h.rate))
                    ELSE least(3600, ceil(greatest(1, h.backlog - 0.9 * h.max_backlog)
                                          / greatest(coalesce(h.drain_per_second, 0), 0.03))) END AS wait
        FROM (
            SELECT a.*, row_number() OVER (PARTITION BY a.partner_id ORDER BY a.ord) AS n
            FROM arrival a LEFT JOIN known k ON k.ord = a.ord
            WHERE a.ord = a.leader AND k.ord IS NULL
        ) a JOIN head h ON h.partner_id = a.partner_id
    ), stored AS (
        INSERT INTO events (partner_id, seq, received_at, type, order_key, headers, query, body)
        SELECT f.partner_id, f.seq, f.at, p_types[f.ord], p_keys[f.ord], p_headers[f.ord], p_queries[f.ord], p_bodies[f.ord]
        FROM fresh f WHERE f.status = 'stored' ORDER BY f.partner_id, f.seq
    ), remembered AS (
        INSERT INTO dedupe AS d (partner_id, digest, seq, received_at)
        SELECT f.partner_id, f.digest, f.seq, f.at FROM fresh f
        WHERE f.status = 'stored' AND f.digest IS NOT NULL ORDER BY f.partner_id, f.digest
        ON CONFLICT (partner_id, digest) DO UPDATE -- only of an age beyond the window
        SET seq = excluded.seq, received_at = excluded.received_at, repeats = 0, conflicts = 0
    ), raised AS (
        UPDATE partner_heads h
        SET last_seq = h.last_seq + f.n, last_at = CASE WHEN f.n > 0 THEN f.at ELSE h.last_at END, tokens = f.tokens - f.n,
            refilled_at = CASE WHEN f.tokens IS NULL THEN NULL ELSE moment END
        FROM (
            SELECT h.partner_id, h.at, h.tokens, count(f.ord) FILTER (WHERE f.status = 'stored') AS n
            FROM head h JOIN fresh f ON f.partner_id = h.partner_id
            GROUP BY h.partner_id, h.at, h.tokens
        ) f WHERE h.partner_id = f.partner_id AND (f.n > 0 OR h.refilled_at > moment) -- a clock that was set back
    ), repeated AS (
        SELECT a.ord, k.row,
               coalesce(k.seq, f.seq) AS seq, coalesce(k.received_at, f.at) AS received_at,
               CASE WHEN k.ord IS NOT NULL THEN e.body IS DISTINCT FROM p_bodies[a.ord]
                    ELSE p_bodies[a.leader] IS DISTINCT FROM p_bodies[a.ord] END AS conflict,
               f.status AS leader_status, f.wait
        FROM arrival a
        LEFT JOIN known k ON k.ord = a.ord
        LEFT JOIN fresh f ON f.ord = a.leader
        LEFT JOIN LATERAL (
            SELECT e.body FROM events e
            WHERE e.partner_id = a.partner_id AND e.seq = k.seq AND e.received_at = k.received_at OFFSET 0
        ) e ON true
        WHERE k.ord IS NOT NULL OR (a.ord <> a.leader AND f.ord IS NOT NULL)
    ), counted AS (
        UPDATE dedupe d SET repeats = d.repeats + r.n, conflicts = d.conflicts + r.conflicts
        FROM (
            SELECT r.row, count(*) AS n, count(*) FILTER (WHERE r.conflict) AS conflicts
            FROM repeated r WHERE r.row IS NOT NULL GROUP BY r.row
        ) r WHERE d.ctid = r.row
    )
    SELECT f.ord, f.status, CASE WHEN f.status = 'stored' THEN f.seq END, CASE WHEN f.status = 'stored' THEN f.at END,
           false, f.wait::int
    FROM fresh f
    UNION ALL
    SELECT r.ord, CASE WHEN coalesce(r.leader_status, 'stored') = 'stored' THEN 'repeat' ELSE r.leader_status END,
           CASE WHEN coalesce(r.leader_status, 'stored') = 'stored' THEN r.seq END,
           CASE WHEN coalesce(r.leader_status, 'stored') = 'stored' THEN r.received_at END,
           r.conflict, r.wait::int
    FROM repeated r
    UNION ALL
    SELECT a.ord, 'unknown_partner', NULL, NULL, false, NULL
    FROM arrival a LEFT JOIN head h ON h.partner_id = a.partner_id WHERE h.partner_id IS NULL;
END $$;
