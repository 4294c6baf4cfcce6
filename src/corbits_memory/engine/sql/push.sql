-- Webhooks. What administers them names its tenant; what delivers them runs as the owner, across tenants.

-- name: create_subscription
-- From a number on, or from now on.
INSERT INTO memory.subscription (tenant_id, id, url, principal_id, created_by, ops, exclude_generator, include_text,
  position)
SELECT %(tenant)s, %(id)s, %(url)s, %(principal)s, %(created_by)s, %(ops)s, %(excluded)s, %(text)s,
  coalesce(%(after)s::bigint, (SELECT t.feed_seq FROM memory.tenant_state t WHERE t.tenant_id = %(tenant)s), 0)
WHERE (SELECT count(*) FROM memory.subscription s WHERE s.tenant_id = %(tenant)s) < %(limit)s

-- name: keep_secret
-- What deliveries are signed with.
INSERT INTO memory.subscription_secret (tenant_id, subscription_id, secret) VALUES (%(tenant)s, %(id)s, %(secret)s)

-- name: subscriptions
-- All of a tenant, or one, oldest first.
SELECT s.id, s.url, s.principal_id, s.created_by, s.ops, s.exclude_generator, s.include_text, s.position, s.failures,
  s.last_error, s.last_delivered_at, s.created_at, (SELECT count(*) FROM memory.delivery d
    WHERE d.tenant_id = %(tenant)s AND d.subscription_id = s.id AND d.state = 'dead') AS dead
FROM memory.subscription s
WHERE s.tenant_id = %(tenant)s AND (%(id)s::text IS NULL OR s.id = %(id)s) ORDER BY s.id

-- name: remove_subscription
-- And all that belongs to it.
DELETE FROM memory.subscription WHERE tenant_id = %(tenant)s AND id = %(id)s

-- name: dead_letters
-- What was given up, in order.
SELECT d.seq, e.op, e.version_id, d.failures, d.last_error, d.failed_at
FROM memory.delivery d LEFT JOIN memory.feed_event e ON e.tenant_id = %(tenant)s AND e.seq = d.seq
WHERE d.tenant_id = %(tenant)s AND d.subscription_id = %(id)s AND d.state = 'dead' AND d.seq > %(after)s
ORDER BY d.seq LIMIT %(limit)s

-- name: replay
-- Have dead letters sent again: all, or those with some numbers.
UPDATE memory.delivery SET state = 'replay', failures = 0, not_before = now()
WHERE tenant_id = %(tenant)s AND subscription_id = %(id)s AND state = 'dead'
  AND (%(seqs)s::bigint[] IS NULL OR seq = ANY (%(seqs)s))

-- name: claim
-- Subscriptions with something to deliver, the one that waited longest first, each for one worker alone.
UPDATE memory.subscription s
SET lease = %(lease)s, leased_until = clock_timestamp() + make_interval(secs => %(seconds)s)
FROM (
  SELECT x.tenant_id, x.id FROM memory.subscription x
  JOIN memory.tenant_state t ON t.tenant_id = x.tenant_id
  WHERE x.leased_until <= now() AND ((x.position < t.feed_seq AND x.not_before <= now()) OR EXISTS (
    SELECT FROM memory.delivery d WHERE d.tenant_id = x.tenant_id AND d.subscription_id = x.id
      AND d.state = 'replay' AND d.not_before <= now()))
  ORDER BY x.leased_until, x.tenant_id, x.id LIMIT %(limit)s FOR UPDATE OF x SKIP LOCKED) AS due,
  memory.subscription_secret k
WHERE s.tenant_id = due.tenant_id AND s.id = due.id AND k.tenant_id = due.tenant_id AND k.subscription_id = due.id
RETURNING s.tenant_id, s.id, s.url, s.principal_id, s.ops, s.exclude_generator, s.include_text, s.position, s.failures,
  s.not_before <= now() AS due, k.secret

-- name: renew
-- Hold it longer; no row: it is somebody else's by now, or gone.
UPDATE memory.subscription SET leased_until = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE tenant_id = %(tenant)s AND id = %(id)s AND lease = %(lease)s AND leased_until > clock_timestamp() RETURNING id

-- name: release
-- Let others have it.
UPDATE memory.subscription SET lease = NULL, leased_until = now()
WHERE tenant_id = %(tenant)s AND id = %(id)s AND lease = %(lease)s

-- name: advance
-- Delivered (or nothing to deliver) up to a number; no row as above.
UPDATE memory.subscription SET position = %(position)s, failures = 0, not_before = now(), last_error = NULL,
  last_delivered_at = CASE WHEN %(delivered)s THEN now() ELSE last_delivered_at END
WHERE tenant_id = %(tenant)s AND id = %(id)s AND lease = %(lease)s RETURNING id

-- name: postpone
-- The next entry failed and is tried again later.
UPDATE memory.subscription SET failures = %(failures)s, last_error = %(error)s,
  not_before = now() + make_interval(secs => %(seconds)s)
WHERE tenant_id = %(tenant)s AND id = %(id)s AND lease = %(lease)s RETURNING id

-- name: bury
-- The next entry is given up; the ones after it go on.
WITH moved AS (
  UPDATE memory.subscription SET position = %(seq)s, failures = 0, not_before = now(), last_error = %(error)s
  WHERE tenant_id = %(tenant)s AND id = %(id)s AND lease = %(lease)s RETURNING id
), buried AS (
  INSERT INTO memory.delivery (tenant_id, subscription_id, seq, state, failures, last_error)
  SELECT %(tenant)s, moved.id, %(seq)s, 'dead', %(failures)s, %(error)s FROM moved
  ON CONFLICT (tenant_id, subscription_id, seq) DO UPDATE SET state = 'dead', failures = excluded.failures,
    last_error = excluded.last_error, failed_at = now()
)
SELECT id FROM moved

-- name: due_replays
-- What is to be sent again now.
SELECT seq, failures FROM memory.delivery
WHERE tenant_id = %(tenant)s AND subscription_id = %(id)s AND state = 'replay' AND not_before <= now()
ORDER BY seq LIMIT %(limit)s

-- name: settle_replay
-- Delivered after all, or not to be told any more.
DELETE FROM memory.delivery
WHERE tenant_id = %(tenant)s AND subscription_id = %(id)s AND seq = %(seq)s AND state = 'replay'

-- name: postpone_replay
-- It failed again: later once more, or given up again.
UPDATE memory.delivery SET state = CASE WHEN %(dead)s THEN 'dead' ELSE 'replay' END, failures = %(failures)s,
  last_error = %(error)s, failed_at = now(), not_before = now() + make_interval(secs => %(seconds)s)
WHERE tenant_id = %(tenant)s AND subscription_id = %(id)s AND seq = %(seq)s AND state = 'replay'

-- name: next_retry
-- In how many seconds something that nobody works on is to be tried again; NULL: nothing waits.
SELECT extract(epoch FROM min(least(CASE WHEN s.failures > 0 THEN s.not_before END, d.not_before)) - now())::float
FROM memory.subscription s
LEFT JOIN memory.delivery d ON d.tenant_id = s.tenant_id AND d.subscription_id = s.id AND d.state = 'replay'
WHERE s.leased_until <= now()
