-- Transform configs, runs, and the slices that runs are cut into.

-- name: lock_config_name
-- Versions of one name are counted one after the other.
SELECT pg_advisory_xact_lock(hashtext('memory.transform_config'), hashtext(%(tenant)s || E'\x1f' || %(name)s))

-- name: create_config
-- The next version of a name.
INSERT INTO memory.transform_config (tenant_id, id, name, version, params)
SELECT %(tenant)s, %(id)s, %(name)s, 1 + coalesce(max(c.version), 0), %(params)s
FROM memory.transform_config c WHERE c.tenant_id = %(tenant)s AND c.name = %(name)s
RETURNING id, name, version, params, created_at

-- name: keep_secrets
-- Its keys, which no read of a tenant returns.
INSERT INTO memory.transform_secret (tenant_id, config_id, field, secret)
SELECT %(tenant)s, %(config)s, x.field, x.secret FROM unnest(%(fields)s::text[], %(secrets)s::text[]) AS x(field, secret)

-- name: list_configs
-- Newest first; of one name, where it is given.
SELECT c.id, c.name, c.version, c.params, c.created_at FROM memory.transform_config c
WHERE c.tenant_id = %(tenant)s AND (%(name)s::text IS NULL OR c.name = %(name)s)
ORDER BY c.id DESC LIMIT %(limit)s

-- name: get_config
-- One.
SELECT c.id, c.name, c.version, c.params, c.created_at FROM memory.transform_config c
WHERE c.tenant_id = %(tenant)s AND c.id = %(config)s

-- name: differing_secrets
-- Which keys of two configs are not the same. Read as the owner; the keys stay in the database.
SELECT f.field FROM (VALUES ('embed.apiKey'), ('rerank.apiKey')) AS f(field)
LEFT JOIN memory.transform_secret a ON a.tenant_id = %(tenant)s AND a.config_id = %(before)s AND a.field = f.field
LEFT JOIN memory.transform_secret b ON b.tenant_id = %(tenant)s AND b.config_id = %(after)s AND b.field = f.field
WHERE a.secret IS DISTINCT FROM b.secret ORDER BY f.field

-- name: delete_config
-- With its keys; the database refuses it while a run was made with it.
DELETE FROM memory.transform_config c WHERE c.tenant_id = %(tenant)s AND c.id = %(config)s RETURNING c.id

-- name: create_run
-- A run that begins, or that failed before it could. What the feed tells of from here on is caught up later.
INSERT INTO memory.transform_run (tenant_id, id, config_id, scope, generation, status, error, completed_at, created_by,
  pinned, model_key)
VALUES (%(tenant)s, %(run)s, %(config)s, %(scope)s, %(run)s, %(status)s, %(error)s,
  CASE WHEN %(status)s = 'running' THEN NULL ELSE now() END, %(actor)s, %(pinned)s, %(model_key)s)

-- name: create_generation
-- What a run writes into.
INSERT INTO memory.generation (tenant_id, id, model_key, caught_seq)
SELECT %(tenant)s, %(generation)s, %(model_key)s, coalesce((
  SELECT s.feed_seq FROM memory.tenant_state s WHERE s.tenant_id = %(tenant)s), 0)
ON CONFLICT (tenant_id, id) DO NOTHING

-- name: runs
-- Newest first, or one, with how far they are.
SELECT r.id, r.config_id, r.scope, r.generation, r.status, r.paused, r.cancelled, r.raw_total, r.raw_count,
  r.version_count, r.skipped_count, r.error, r.created_at, r.completed_at, r.promoted_at, r.archived_live_generation,
  r.archived_live_model_key, r.model_key, r.pinned, r.created_by, r.generation = s.live_generation AS live,
  p.captures_done, p.derived, p.versions, p.recent, p.since
FROM memory.transform_run r
LEFT JOIN memory.tenant_state s ON s.tenant_id = r.tenant_id
CROSS JOIN LATERAL (
  SELECT coalesce(sum(c.captures) FILTER (WHERE c.status = 'done'), 0) AS captures_done,
    coalesce(sum(c.raw_count), 0) AS derived, coalesce(sum(c.version_count), 0) AS versions,
    coalesce(sum(c.captures) FILTER (WHERE c.done_at > now() - interval '60 s'), 0) AS recent,
    least(60, date_part('epoch', now() - r.created_at)) AS since
  FROM memory.transform_slice c WHERE c.tenant_id = r.tenant_id AND c.run_id = r.id
    AND (r.status = 'running' OR %(run)s::text IS NOT NULL)) AS p
WHERE r.tenant_id = %(tenant)s AND (%(run)s::text IS NULL OR r.id = %(run)s)
ORDER BY r.id DESC LIMIT %(limit)s

-- name: failures
-- Slices that were given up, and those that are being tried again.
SELECT c.after_id, c.last_id, c.captures, c.attempts, c.error FROM memory.transform_slice c
WHERE c.tenant_id = %(tenant)s AND c.run_id = %(run)s AND c.error IS NOT NULL AND c.status <> 'done'
ORDER BY c.status = 'failed' DESC, c.last_id LIMIT %(limit)s

-- name: skipped
-- Raw captures that could not be read.
SELECT k.raw_capture_id, k.problem FROM memory.transform_skip k
WHERE k.tenant_id = %(tenant)s AND k.run_id = %(run)s ORDER BY k.raw_capture_id LIMIT %(limit)s

-- name: lock_run
-- A run, for a change of its state.
SELECT r.id, r.config_id, r.scope, r.generation, r.status, r.paused, r.cancelled, r.cut_after, r.raw_total, r.raw_count,
  r.skipped_count, r.promoted_at, r.archived_live_generation, r.archived_live_model_key, r.model_key, r.pinned,
  EXISTS (SELECT FROM memory.transform_config c WHERE c.tenant_id = r.tenant_id AND c.id = r.config_id) AS has_config,
  r.error, EXISTS (SELECT FROM memory.transform_slice s WHERE s.tenant_id = r.tenant_id AND s.run_id = r.id
                   AND s.status <> 'done') AS failed_slices
FROM memory.transform_run r WHERE r.tenant_id = %(tenant)s AND r.id = %(run)s FOR UPDATE

-- name: set_paused
-- No slice is claimed while it is paused.
UPDATE memory.transform_run SET paused = %(paused)s WHERE tenant_id = %(tenant)s AND id = %(run)s

-- name: cancel_run
-- Nobody claims its slices any more; whoever has one gives it back.
UPDATE memory.transform_run SET cancelled = true, paused = false
WHERE tenant_id = %(tenant)s AND id = %(run)s

-- name: retry_run
-- It runs again. What failed, and what was passed over, is tried once more.
UPDATE memory.transform_run SET status = 'running', cancelled = false, paused = false, error = NULL, completed_at = NULL,
  skipped_count = 0, model_key = coalesce(model_key, %(model_key)s)
WHERE tenant_id = %(tenant)s AND id = %(run)s

-- name: retry_slices
-- Slices that failed, and those with captures that were passed over.
UPDATE memory.transform_slice c SET status = 'pending', attempts = 0, error = NULL, lease = NULL, leased_until = now(),
  done_at = NULL
WHERE c.tenant_id = %(tenant)s AND c.run_id = %(run)s AND (c.status = 'failed' OR EXISTS (
  SELECT FROM memory.transform_skip k WHERE k.tenant_id = c.tenant_id AND k.run_id = c.run_id
    AND k.raw_capture_id > c.after_id AND k.raw_capture_id <= c.last_id))

-- name: forget_skips
-- They are looked at anew.
DELETE FROM memory.transform_skip k WHERE k.tenant_id = %(tenant)s AND k.run_id = %(run)s

-- name: cut
-- Slices that follow those that were cut before.
INSERT INTO memory.transform_slice (tenant_id, run_id, after_id, last_id, captures)
SELECT %(tenant)s, %(run)s, x.after_id, x.last_id, x.captures
FROM unnest(%(afters)s::text[], %(lasts)s::text[], %(captures)s::integer[]) AS x(after_id, last_id, captures)

-- name: cut_to
-- How far the cutting is; at its end also how much there is to do.
UPDATE memory.transform_run r SET cut_after = %(after)s, raw_total = CASE WHEN %(ended)s THEN (
  SELECT coalesce(sum(c.captures), 0) FROM memory.transform_slice c
  WHERE c.tenant_id = r.tenant_id AND c.run_id = r.id) END
WHERE r.tenant_id = %(tenant)s AND r.id = %(run)s

-- name: running_runs
-- For workers, of all tenants.
SELECT r.tenant_id, r.id FROM memory.transform_run r
WHERE r.status = 'running' AND NOT r.paused ORDER BY r.tenant_id, r.id LIMIT 1000

-- name: claim_slice
-- The next slice that is due, leased: a worker that dies loses it by time.
WITH next AS (
  SELECT c.last_id FROM memory.transform_slice c
  JOIN memory.transform_run r ON r.tenant_id = %(tenant)s AND r.id = c.run_id AND r.status = 'running' AND NOT r.paused
  WHERE c.tenant_id = %(tenant)s AND c.run_id = %(run)s AND c.status = 'pending' AND c.leased_until <= now()
  ORDER BY c.last_id LIMIT 1 FOR UPDATE OF c SKIP LOCKED
)
UPDATE memory.transform_slice c SET lease = %(lease)s, leased_until = now() + make_interval(secs => %(seconds)s),
  attempts = c.attempts + 1
FROM next WHERE c.tenant_id = %(tenant)s AND c.run_id = %(run)s AND c.last_id = next.last_id
RETURNING c.after_id, c.last_id, c.captures, c.attempts

-- name: hold_slice
-- Whether a slice is still this worker's, and its run still wanted; both stay so until the transaction ends.
UPDATE memory.transform_slice c SET leased_until = now() + make_interval(secs => %(seconds)s)
FROM memory.transform_run r
WHERE c.tenant_id = %(tenant)s AND c.run_id = %(run)s AND c.last_id = %(last)s AND c.lease = %(lease)s
  AND r.tenant_id = %(tenant)s AND r.id = c.run_id AND r.status = 'running' AND NOT r.paused
RETURNING c.last_id

-- name: release_slice
-- Given back, as if it had not been claimed; or later, with the reason, or given up.
UPDATE memory.transform_slice c SET lease = NULL, error = coalesce(%(error)s, c.error),
  leased_until = now() + make_interval(secs => %(seconds)s), attempts = c.attempts - %(uncounted)s,
  status = CASE WHEN %(given_up)s THEN 'failed' ELSE c.status END
WHERE c.tenant_id = %(tenant)s AND c.run_id = %(run)s AND c.last_id = %(last)s AND c.lease = %(lease)s

-- name: end_slice
-- Done; counted is what stands there now, however often it was begun.
WITH made AS (
  SELECT count(DISTINCT v.raw_capture_id) AS captures, count(*) AS versions FROM memory.version v
  WHERE v.tenant_id = %(tenant)s AND v.raw_capture_id = ANY (%(captures)s) AND v.raw_capture_id IS NOT NULL
    AND v.generation = %(run)s
), ended AS (
  UPDATE memory.transform_slice c SET status = 'done', lease = NULL, error = NULL, done_at = now(),
    raw_count = made.captures, version_count = made.versions
  FROM made
  WHERE c.tenant_id = %(tenant)s AND c.run_id = %(run)s AND c.last_id = %(last)s AND c.lease = %(lease)s
  RETURNING c.last_id
)
SELECT last_id FROM ended

-- name: note_skips
-- Raw captures that were passed over, and why.
INSERT INTO memory.transform_skip (tenant_id, run_id, raw_capture_id, problem)
SELECT %(tenant)s, %(run)s, x.id, x.problem FROM unnest(%(captures)s::text[], %(problems)s::text[]) AS x(id, problem)
ON CONFLICT (tenant_id, run_id, raw_capture_id) DO UPDATE SET problem = excluded.problem

-- name: waiting_chunks
-- What of some raw captures' copies has no vector yet.
SELECT q.chunk_id FROM memory.version v
JOIN memory.chunk t ON t.tenant_id = %(tenant)s AND t.version_id = v.id
JOIN memory.embed_queue q ON q.tenant_id = %(tenant)s AND q.chunk_id = t.id
WHERE v.tenant_id = %(tenant)s AND v.raw_capture_id = ANY (%(captures)s) AND v.raw_capture_id IS NOT NULL
  AND v.generation = %(run)s AND q.error IS NULL
ORDER BY q.chunk_id

-- name: open_slices
-- What is left of a run: slices that are not done, and when the first of them may be tried.
SELECT count(*) FILTER (WHERE c.status = 'pending') AS pending, count(*) FILTER (WHERE c.status = 'failed') AS failed,
  count(*) FILTER (WHERE c.status = 'pending' AND c.leased_until <= now()) AS due,
  date_part('epoch', min(c.leased_until) FILTER (WHERE c.status = 'pending') - now()) AS seconds
FROM memory.transform_slice c
WHERE c.tenant_id = %(tenant)s AND c.run_id = %(run)s AND c.status <> 'done'

-- name: end_run
-- Counted from its slices, each once.
UPDATE memory.transform_run r SET status = %(status)s, error = %(error)s, completed_at = now(),
  raw_count = c.raw_count, version_count = c.version_count, skipped_count = c.skipped
FROM (
  SELECT coalesce(sum(s.raw_count), 0) AS raw_count, coalesce(sum(s.version_count), 0) AS version_count,
    (SELECT count(*) FROM memory.transform_skip k WHERE k.tenant_id = %(tenant)s AND k.run_id = %(run)s) AS skipped
  FROM memory.transform_slice s WHERE s.tenant_id = %(tenant)s AND s.run_id = %(run)s AND s.status = 'done') AS c
WHERE r.tenant_id = %(tenant)s AND r.id = %(run)s
RETURNING r.raw_count

-- name: run_outcome
-- What came of a run's slices.
SELECT coalesce(sum(s.captures), 0) AS captures, count(*) FILTER (WHERE s.status = 'pending') AS pending,
  coalesce(sum(s.captures) FILTER (WHERE s.status = 'failed'), 0) AS failed, min(s.error) FILTER (WHERE s.status = 'failed') AS error,
  (SELECT count(*) FROM memory.transform_skip k WHERE k.tenant_id = %(tenant)s AND k.run_id = %(run)s) AS skipped,
  (SELECT k.raw_capture_id || ': ' || k.problem FROM memory.transform_skip k
   WHERE k.tenant_id = %(tenant)s AND k.run_id = %(run)s ORDER BY k.raw_capture_id LIMIT 1) AS skip
FROM memory.transform_slice s WHERE s.tenant_id = %(tenant)s AND s.run_id = %(run)s
