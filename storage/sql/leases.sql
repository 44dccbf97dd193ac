-- Who owns which shard (promise P5). A lease belongs to a worker; its shards stand and fall with it. The database's
-- clock alone decides.

-- Keeps or makes this worker's lease, fences the workers whose lease has ended, and takes free shards up to a fair share.
-- Answers the shards owned, their epochs, the fair share and the number of living workers.
-- Raises HY001 if this worker was fenced: whatever it held is somebody else's now. Only its first call makes a lease, so
-- that a token which was forgotten after its end does not come back.
CREATE OR REPLACE FUNCTION tend_lease(
    p_token uuid, p_name text, p_lease interval, p_first boolean, p_dead text,
    OUT shards int[], OUT epochs bigint[], OUT share int, OUT living int
) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(4046128); -- one at a time: each locks its own row and then those of the late
    IF p_first THEN
        INSERT INTO workers (token, name, expires_at) VALUES (p_token, p_name, clock_timestamp() + p_lease)
        ON CONFLICT (token) DO NOTHING; -- sent again after an answer that was lost
        -- Who is known to be dead need not be waited for: an earlier process of this slot of `hookyard up`.
        UPDATE workers w SET expires_at = clock_timestamp() - interval '1 ms'
        WHERE starts_with(w.name, p_dead) AND w.token <> p_token AND NOT w.fenced;
    END IF;
    UPDATE workers SET expires_at = clock_timestamp() + p_lease WHERE token = p_token AND NOT fenced;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'lease lost: worker % was fenced', p_token USING ERRCODE = 'HY001';
    END IF;
    -- Waits for the last transaction of an owner that is still at it, and comes before anybody looks at its lanes.
    UPDATE workers w SET fenced = true
    FROM (SELECT token FROM workers WHERE NOT fenced AND expires_at < clock_timestamp() ORDER BY token FOR UPDATE) late
    WHERE w.token = late.token;
    UPDATE shards s SET owner = NULL
    WHERE s.owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.token = s.owner AND NOT w.fenced);
    DELETE FROM workers WHERE fenced AND expires_at < clock_timestamp() - interval '1 hour';

    SELECT count(*) INTO living FROM workers WHERE NOT fenced;
    SELECT ceil(count(*)::float8 / living) INTO share FROM shards;
    UPDATE shards s SET owner = p_token, epoch = s.epoch + 1
    FROM (
        SELECT f.shard FROM shards f WHERE f.owner IS NULL ORDER BY f.shard
        LIMIT greatest(0, share - (SELECT count(*) FROM shards m WHERE m.owner = p_token)) FOR UPDATE SKIP LOCKED
    ) free WHERE s.shard = free.shard;
    SELECT array_agg(s.shard ORDER BY s.shard), array_agg(s.epoch ORDER BY s.shard) INTO shards, epochs
    FROM shards s WHERE s.owner = p_token;
END $$;

-- Gives shards back; all of them and the lease itself when p_shards is NULL.
CREATE OR REPLACE FUNCTION give_back(p_token uuid, p_shards int[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- Waits for this owner's own transactions under way, so that what they dispatched is there for the next owner to see.
    PERFORM 1 FROM workers WHERE token = p_token FOR NO KEY UPDATE;
    UPDATE shards SET owner = NULL WHERE owner = p_token AND (p_shards IS NULL OR shard = ANY (p_shards));
    IF p_shards IS NULL THEN
        DELETE FROM workers WHERE token = p_token;
    END IF;
END $$;

-- Locks this worker's lease until the end of the transaction, so that no takeover can come in between.
CREATE OR REPLACE FUNCTION hold_lease(p_token uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM workers WHERE token = p_token AND NOT fenced FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'lease lost: worker % was fenced', p_token USING ERRCODE = 'HY001';
    END IF;
END $$;
