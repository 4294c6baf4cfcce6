-- Distillers: a cursor each, held by one process at a time.

-- name: claim
-- Take the cursor, making it where there is none; no row: somebody has it, or it waits after a failure.
INSERT INTO memory.distill_cursor AS c (tenant_id, principal_id, agent_id, position, lease, leased_until)
VALUES (%(tenant)s, %(principal)s, %(agent)s, %(after)s, %(lease)s, now() + make_interval(secs => %(seconds)s))
ON CONFLICT (tenant_id, principal_id, agent_id) DO UPDATE
  SET lease = excluded.lease, leased_until = excluded.leased_until
  WHERE c.leased_until <= now() AND (%(impatient)s OR c.not_before <= now())
RETURNING position

-- name: open_failures
-- What is to be tried again, in order.
SELECT f.seq, f.attempts FROM memory.distill_failure f
WHERE f.tenant_id = %(tenant)s AND f.principal_id = %(principal)s AND f.agent_id = %(agent)s AND NOT f.dead
ORDER BY f.seq LIMIT %(limit)s

-- name: renew
-- Hold it longer; no row: it is somebody else's by now, or gone.
UPDATE memory.distill_cursor SET leased_until = now() + make_interval(secs => %(seconds)s)
WHERE tenant_id = %(tenant)s AND principal_id = %(principal)s AND agent_id = %(agent)s AND lease = %(lease)s
RETURNING position

-- name: release
-- Let others have it.
UPDATE memory.distill_cursor SET lease = NULL, leased_until = now()
WHERE tenant_id = %(tenant)s AND principal_id = %(principal)s AND agent_id = %(agent)s AND lease = %(lease)s

-- name: settle
-- Everything up to a number is done, and what had failed at it is no failure any more; no row as above.
WITH moved AS (
  UPDATE memory.distill_cursor c SET position = greatest(c.position, %(seq)s), not_before = now()
  WHERE c.tenant_id = %(tenant)s AND c.principal_id = %(principal)s AND c.agent_id = %(agent)s AND c.lease = %(lease)s
  RETURNING c.position
), settled AS (
  DELETE FROM memory.distill_failure f USING moved
  WHERE f.tenant_id = %(tenant)s AND f.principal_id = %(principal)s AND f.agent_id = %(agent)s
    AND f.seq = %(seq)s AND NOT f.dead
)
SELECT position FROM moved

-- name: fail
-- An entry failed: nothing is tried for some seconds, or (dead) the ones after it go on. The version is locked, so that
-- what erases it waits and then takes the reason along; of one that is erased no reason is kept. No row as above.
WITH held AS (
  UPDATE memory.distill_cursor c
  SET position = CASE WHEN %(dead)s THEN greatest(c.position, %(seq)s) ELSE c.position END,
    not_before = now() + make_interval(secs => %(wait)s)
  WHERE c.tenant_id = %(tenant)s AND c.principal_id = %(principal)s AND c.agent_id = %(agent)s AND c.lease = %(lease)s
  RETURNING c.position
), kept AS (
  SELECT v.id FROM memory.version v
  WHERE v.tenant_id = %(tenant)s AND v.id = %(version)s AND v.status <> 'tombstoned' FOR KEY SHARE
)
INSERT INTO memory.distill_failure AS f (tenant_id, principal_id, agent_id, seq, version_id, attempts, reason, dead)
SELECT %(tenant)s, %(principal)s, %(agent)s, %(seq)s, %(version)s, %(attempts)s,
  CASE WHEN kept.id IS NULL THEN 'erased' ELSE %(reason)s END, %(dead)s
FROM held LEFT JOIN kept ON true
ON CONFLICT (tenant_id, principal_id, agent_id, seq) DO UPDATE SET attempts = excluded.attempts,
  reason = excluded.reason, dead = excluded.dead, failed_at = now()
RETURNING f.seq

-- name: wait
-- Nothing is tried for some seconds, and nobody counts that; no row as above.
UPDATE memory.distill_cursor SET not_before = now() + make_interval(secs => %(wait)s)
WHERE tenant_id = %(tenant)s AND principal_id = %(principal)s AND agent_id = %(agent)s AND lease = %(lease)s
RETURNING position

-- name: state
-- Where it is, whether somebody holds it, and for how many seconds it waits.
SELECT c.position, c.leased_until > now() AS held, greatest(extract(epoch FROM c.not_before - now()), 0)::float AS waits,
  (SELECT count(*) FROM memory.distill_failure f WHERE f.tenant_id = %(tenant)s AND f.principal_id = %(principal)s
    AND f.agent_id = %(agent)s AND f.dead) AS dead
FROM memory.distill_cursor c
WHERE c.tenant_id = %(tenant)s AND c.principal_id = %(principal)s AND c.agent_id = %(agent)s

-- name: failures
-- What was given up, in order.
SELECT f.seq, f.version_id, f.attempts, f.reason, f.failed_at FROM memory.distill_failure f
WHERE f.tenant_id = %(tenant)s AND f.principal_id = %(principal)s AND f.agent_id = %(agent)s AND f.dead
  AND f.seq > %(after)s
ORDER BY f.seq LIMIT %(limit)s

-- name: retry
-- Have what was given up tried again: all, or those with some numbers.
UPDATE memory.distill_failure SET dead = false, attempts = 0
WHERE tenant_id = %(tenant)s AND principal_id = %(principal)s AND agent_id = %(agent)s AND dead
  AND (%(seqs)s::bigint[] IS NULL OR seq = ANY (%(seqs)s))

-- name: move
-- Put an idle cursor elsewhere, making it where there is none; no row: somebody holds it.
INSERT INTO memory.distill_cursor AS c (tenant_id, principal_id, agent_id, position)
VALUES (%(tenant)s, %(principal)s, %(agent)s, %(seq)s)
ON CONFLICT (tenant_id, principal_id, agent_id) DO UPDATE SET position = excluded.position, not_before = now()
  WHERE c.leased_until <= now()
RETURNING position
