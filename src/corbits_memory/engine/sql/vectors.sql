-- The registry of vector spaces, the queue of chunks without a vector, and what is embedded.

-- name: active_model
-- The model whose vectors this tenant's searches read.
SELECT model_key, model_id, base_url, api_style, dims, vector_type, sample FROM memory.embed_model
WHERE tenant_id = %(tenant)s AND status = 'active'

-- name: model_by_key
-- A registered model, whatever its status.
SELECT model_key, model_id, base_url, api_style, dims, vector_type, sample FROM memory.embed_model
WHERE tenant_id = %(tenant)s AND model_key = %(model_key)s

-- name: lock_registry
-- One change of a tenant's models at a time.
SELECT pg_advisory_xact_lock(hashtext('memory.embed_model'), hashtext(%(tenant)s))

-- name: lock_table
-- One creates or drops a table of vectors at a time.
SELECT pg_advisory_xact_lock(hashtext(%(name)s))

-- name: hold_table
-- Whether a table of vectors is there; nobody drops it before the transaction ends.
SELECT to_regclass(%(name)s) FROM (SELECT pg_advisory_xact_lock_shared(hashtext(%(name)s)) OFFSET 0) AS locked

-- name: lock_models
-- The tenant's models. The lock waits for whoever stores vectors.
SELECT model_key, status, updated_at, replaced_by, scanned FROM memory.embed_model WHERE tenant_id = %(tenant)s
ORDER BY id FOR UPDATE

-- name: register_model
-- Put a model into the registry, or refresh what it is. updated_at: when the last process opened that came with it.
INSERT INTO memory.embed_model (tenant_id, id, model_key, model_id, base_url, api_style, dims, vector_type, status,
  updated_at)
VALUES (%(tenant)s, %(id)s, %(model_key)s, %(model_id)s, %(base_url)s, %(api_style)s, %(dims)s, %(vector_type)s, 'ready',
  coalesce(%(since)s::timestamptz, clock_timestamp()))
ON CONFLICT (tenant_id, model_key) DO UPDATE SET model_id = excluded.model_id, dims = excluded.dims,
  base_url = excluded.base_url, api_style = excluded.api_style,
  updated_at = greatest(embed_model.updated_at, excluded.updated_at)

-- name: step_back_models
-- All models of the tenant but one become ready.
UPDATE memory.embed_model SET status = 'ready', replaced_by = NULL
WHERE tenant_id = %(tenant)s AND status = 'active' AND model_key <> %(model_key)s

-- name: activate_model
-- One model becomes the active one. The sample is of the tenant's chunks, whatever model they are embedded by.
UPDATE memory.embed_model m SET status = 'active', replaced_by = NULL, sample = coalesce((
  SELECT o.sample FROM memory.embed_model o WHERE o.tenant_id = %(tenant)s AND o.model_key = %(before)s), m.sample)
WHERE m.tenant_id = %(tenant)s AND m.model_key = %(model_key)s AND m.status <> 'active'

-- name: replace_model
-- The active model stays so until another has all vectors, or (NULL) as long as it likes.
UPDATE memory.embed_model SET replaced_by = %(replaced_by)s
WHERE tenant_id = %(tenant)s AND status = 'active' AND replaced_by IS DISTINCT FROM %(replaced_by)s

-- name: note_scanned
-- Whether all that a model's table lacked when it was chosen stands in the queue.
UPDATE memory.embed_model SET scanned = %(scanned)s
WHERE tenant_id = %(tenant)s AND model_key = %(model_key)s AND scanned <> %(scanned)s

-- name: hold_active_model
-- Whether a model is the active one, and which is to replace it; both stay so to the end of the transaction. The
-- weakest lock that lock_models waits for: a redrawn sample doesn't.
SELECT replaced_by FROM memory.embed_model WHERE tenant_id = %(tenant)s AND model_key = %(model_key)s AND status = 'active'
FOR KEY SHARE

-- name: hold_chosen_model
-- Whether a model is to replace the active one; it stays so to the end of the transaction.
SELECT FROM memory.embed_model WHERE tenant_id = %(tenant)s AND replaced_by = %(model_key)s AND status = 'active'
FOR KEY SHARE

-- name: choose_model
-- One model becomes the active one, chosen later than any process opened. Its sample was of another generation.
UPDATE memory.embed_model SET status = 'active', updated_at = clock_timestamp(), sample = NULL, replaced_by = NULL,
  scanned = true
WHERE tenant_id = %(tenant)s AND model_key = %(model_key)s

-- name: hold_model
-- Whether a model is registered; it stays so to the end of the transaction.
SELECT FROM memory.embed_model WHERE tenant_id = %(tenant)s AND model_key = %(model_key)s FOR KEY SHARE

-- name: changing_tenants
-- Whose active model came with a process that opened before this one, and is not this one's; but for generations whose
-- replay brought it.
SELECT m.tenant_id FROM memory.embed_model m
WHERE m.status = 'active' AND m.model_key <> %(model_key)s AND NOT EXISTS (
    SELECT FROM memory.embed_model o WHERE o.tenant_id = m.tenant_id AND o.updated_at > %(opened)s)
  AND NOT EXISTS (
    SELECT FROM memory.tenant_state s JOIN memory.transform_run r ON r.tenant_id = s.tenant_id
      AND r.generation = s.live_generation AND r.pinned
    WHERE s.tenant_id = m.tenant_id)
ORDER BY m.tenant_id LIMIT 1000

-- name: enqueue_missing
-- Searchable chunks of the live generation that a model's table lacks join the queue; a page at a time, by chunk. Those
-- that somebody drops just then are passed over: waiting for them with others in hand, one would wait in a circle.
WITH page AS (
  SELECT r.chunk_id, r.owner_id, r.generation, e.chunk_id IS NULL AND r.generation = t.live_generation AS missing
  FROM (SELECT s.chunk_id, s.owner_id, s.generation FROM memory.search_row s
        WHERE s.tenant_id = %(tenant)s AND s.chunk_id > %(after)s ORDER BY s.chunk_id LIMIT 5000) AS r
  JOIN memory.tenant_state t ON t.tenant_id = %(tenant)s
  LEFT JOIN {table} e ON e.tenant_id = %(tenant)s AND e.chunk_id = r.chunk_id
), held AS (
  SELECT r.chunk_id, r.generation, r.owner_id FROM memory.search_row r
  WHERE r.tenant_id = %(tenant)s AND r.chunk_id = ANY (ARRAY(SELECT page.chunk_id FROM page WHERE page.missing))
  ORDER BY r.chunk_id FOR KEY SHARE SKIP LOCKED
), queued AS (
  INSERT INTO memory.embed_queue (tenant_id, chunk_id, generation, owner_id, refill)
  SELECT %(tenant)s, held.chunk_id, held.generation, held.owner_id, %(refill)s FROM held
  ON CONFLICT DO NOTHING RETURNING chunk_id
)
SELECT max(page.chunk_id) AS last, (SELECT count(*) FROM queued) AS queued,
  ARRAY(SELECT p.chunk_id FROM page p WHERE p.missing EXCEPT SELECT held.chunk_id FROM held) AS passed
FROM page

-- name: enqueue_passed
-- One that was passed over, should it still be there in the end.
INSERT INTO memory.embed_queue (tenant_id, chunk_id, generation, owner_id, refill)
SELECT %(tenant)s, r.chunk_id, r.generation, r.owner_id, %(refill)s FROM memory.search_row r
WHERE r.tenant_id = %(tenant)s AND r.chunk_id = %(chunk)s FOR KEY SHARE
ON CONFLICT DO NOTHING

-- name: due_tenants
-- Whose chunks wait: one index probe a tenant.
WITH RECURSIVE waiting AS (
  (SELECT q.tenant_id FROM memory.embed_queue q ORDER BY q.tenant_id LIMIT 1)
  UNION ALL
  SELECT (SELECT q.tenant_id FROM memory.embed_queue q WHERE q.tenant_id > w.tenant_id ORDER BY q.tenant_id LIMIT 1)
  FROM waiting w WHERE w.tenant_id IS NOT NULL
)
SELECT w.tenant_id FROM waiting w
WHERE w.tenant_id IS NOT NULL AND EXISTS (
  SELECT FROM memory.embed_queue q WHERE q.tenant_id = w.tenant_id AND q.not_before <= now())
LIMIT 1000

-- name: claim_chunks
-- A generation's next chunks that are due, leased: a worker that dies loses them by time.
WITH due AS (
  SELECT q.chunk_id FROM memory.embed_queue q
  WHERE q.tenant_id = %(tenant)s AND q.generation = %(generation)s AND q.refill = %(refill)s AND q.not_before <= now()
  ORDER BY q.not_before, q.chunk_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE memory.embed_queue q SET not_before = now() + make_interval(secs => %(lease)s), attempts = q.attempts + 1
FROM due WHERE q.tenant_id = %(tenant)s AND q.chunk_id = due.chunk_id
RETURNING q.chunk_id

-- name: passages
-- What is embedded for chunks: their text, and the turn before in the same thread among those with the same readers.
SELECT r.chunk_id, v.title, c.text, r.author, CASE WHEN r.thread IS NOT NULL THEN r.occurred_at END AS occurred_at,
  p.author AS previous_author, p.text AS previous_text, q.enqueued_at
FROM memory.search_row r
JOIN memory.chunk c ON c.tenant_id = %(tenant)s AND c.id = r.chunk_id
JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.id = r.version_id
LEFT JOIN memory.embed_queue q ON q.tenant_id = %(tenant)s AND q.chunk_id = r.chunk_id
LEFT JOIN LATERAL (
  SELECT b.author, bc.text
  FROM memory.search_row b JOIN memory.chunk bc ON bc.tenant_id = %(tenant)s AND bc.id = b.chunk_id
  WHERE b.tenant_id = %(tenant)s AND b.generation = r.generation AND b.context_key = r.context_key
    AND b.owner_id = r.owner_id AND b.access_tags = r.access_tags
    AND (b.occurred_at, b.thread_seq, b.chunk_id) < (r.occurred_at, r.thread_seq, r.chunk_id)
  ORDER BY b.occurred_at DESC, b.thread_seq DESC, b.chunk_id DESC LIMIT 1
) AS p ON r.thread IS NOT NULL
WHERE r.tenant_id = %(tenant)s AND r.chunk_id = ANY (%(chunks)s)
ORDER BY r.chunk_id

-- name: hold_rows
-- Rows about to get their vectors, in key order. Whoever changes their readers or takes away what they were embedded
-- with waits, or was first and is seen by the next statement.
SELECT FROM memory.search_row r WHERE r.tenant_id = %(tenant)s AND r.chunk_id = ANY (%(chunks)s)
ORDER BY r.chunk_id FOR SHARE

-- name: store_vectors
-- Vectors beside what search filters by, unless something has asked for them anew since their text was read.
WITH fresh AS (
  SELECT r.tenant_id, r.chunk_id, r.generation, r.document_id, r.owner_id, r.access_tags, r.kind, r.status,
    r.occurred_at, r.attributes, n.embedding
  FROM unnest(%(chunks)s::text[], %(vectors)s::text[], %(enqueued)s::timestamptz[]) AS n(chunk_id, embedding, enqueued_at)
  JOIN memory.search_row r ON r.tenant_id = %(tenant)s AND r.chunk_id = n.chunk_id
  LEFT JOIN memory.embed_queue q ON q.tenant_id = %(tenant)s AND q.chunk_id = n.chunk_id
  WHERE q.enqueued_at IS NOT DISTINCT FROM n.enqueued_at
  ORDER BY r.chunk_id
)
INSERT INTO {table} (tenant_id, chunk_id, generation, document_id, owner_id, access_tags, kind, status, occurred_at,
  attributes, embedding)
SELECT tenant_id, chunk_id, generation, document_id, owner_id, access_tags, kind, status, occurred_at, attributes,
  embedding::{type} FROM fresh
ON CONFLICT (tenant_id, chunk_id) DO UPDATE SET embedding = excluded.embedding, access_tags = excluded.access_tags,
  status = excluded.status

-- name: dequeue_chunks
-- Done, unless something has asked for them anew since.
DELETE FROM memory.embed_queue q USING unnest(%(chunks)s::text[], %(enqueued)s::timestamptz[]) AS d(chunk_id, enqueued_at)
WHERE q.tenant_id = %(tenant)s AND q.chunk_id = d.chunk_id AND q.enqueued_at IS NOT DISTINCT FROM d.enqueued_at

-- name: refill_chunks
-- Done for the model that serves; the one that is to replace it lacks them still.
UPDATE memory.embed_queue q SET refill = true, not_before = now(), attempts = 0, error = NULL
FROM unnest(%(chunks)s::text[], %(enqueued)s::timestamptz[]) AS d(chunk_id, enqueued_at)
WHERE q.tenant_id = %(tenant)s AND q.chunk_id = d.chunk_id AND q.enqueued_at = d.enqueued_at

-- name: settle_refill
-- After a change of models that was broken off or ended early, a page at a time: what its generation's model has a
-- vector of waits for none, the rest is a gap.
WITH page AS (
  SELECT q.chunk_id, e.chunk_id IS NOT NULL AS done FROM (
    SELECT o.chunk_id FROM memory.embed_queue o
    WHERE o.tenant_id = %(tenant)s AND o.generation = %(generation)s AND o.refill
    ORDER BY o.not_before, o.chunk_id LIMIT 2000 FOR UPDATE) AS q
  LEFT JOIN {table} e ON e.tenant_id = %(tenant)s AND e.chunk_id = q.chunk_id
), dropped AS (
  DELETE FROM memory.embed_queue q USING page WHERE q.tenant_id = %(tenant)s AND q.chunk_id = page.chunk_id AND page.done
), kept AS (
  UPDATE memory.embed_queue q SET refill = false, not_before = now() FROM page
  WHERE q.tenant_id = %(tenant)s AND q.chunk_id = page.chunk_id AND NOT page.done
)
SELECT count(*) FROM page

-- name: refilling
-- Whether any live chunk waits only for the model that is to replace the active one.
SELECT EXISTS (
  SELECT FROM memory.tenant_state s JOIN memory.embed_queue q ON q.tenant_id = s.tenant_id
    AND q.generation = s.live_generation AND q.refill
  WHERE s.tenant_id = %(tenant)s)

-- name: model_change
-- The change of models that is under way, and how many live chunks it still has to embed.
SELECT m.model_id AS before, c.model_id AS after, c.scanned, (
  SELECT count(*) FROM memory.tenant_state s JOIN memory.embed_queue q ON q.tenant_id = s.tenant_id
    AND q.generation = s.live_generation AND q.refill
  WHERE s.tenant_id = %(tenant)s) AS missing
FROM memory.embed_model m
JOIN memory.embed_model c ON c.tenant_id = %(tenant)s AND c.model_key = m.replaced_by
WHERE m.tenant_id = %(tenant)s AND m.status = 'active'

-- name: release_chunks
-- Due again at once: whoever claimed them may not store their vectors.
UPDATE memory.embed_queue SET not_before = now() WHERE tenant_id = %(tenant)s AND chunk_id = ANY (%(chunks)s)

-- name: postpone_chunks
-- Not now: tried again later and later, at most an hour apart. The reason is kept, never the text.
UPDATE memory.embed_queue SET error = %(error)s,
  not_before = now() + make_interval(secs => least(3600, 2 ^ least(attempts, 12)))
WHERE tenant_id = %(tenant)s AND chunk_id = ANY (%(chunks)s)

-- name: retag_vectors
-- Vectors follow a change of tags.
UPDATE {table} e SET access_tags = r.access_tags FROM memory.search_row r
WHERE r.tenant_id = %(tenant)s AND r.document_id = ANY (%(documents)s) AND e.tenant_id = %(tenant)s
  AND e.chunk_id = r.chunk_id

-- name: drop_vectors
-- Vectors that hold what their readers may not see any more.
DELETE FROM {table} e WHERE e.tenant_id = %(tenant)s AND e.chunk_id = ANY (%(chunks)s)

-- name: registered_models
-- Every model of the tenant.
SELECT model_key, model_id, base_url, api_style, dims, vector_type, sample FROM memory.embed_model
WHERE tenant_id = %(tenant)s ORDER BY model_key

-- name: pending
-- How many of a caller's live chunks wait for a vector, and the newest reason why.
SELECT count(*) AS pending, min(q.error) AS error
FROM memory.tenant_state s
JOIN memory.embed_queue q ON q.tenant_id = s.tenant_id AND q.generation = s.live_generation AND q.owner_id = %(principal)s
  AND NOT q.refill
WHERE s.tenant_id = %(tenant)s

-- name: pending_in_tenant
-- How many of a tenant's live chunks wait for a vector.
SELECT count(*) AS pending FROM memory.tenant_state s
JOIN memory.embed_queue q ON q.tenant_id = s.tenant_id AND q.generation = s.live_generation AND NOT q.refill
WHERE s.tenant_id = %(tenant)s

-- name: due_generations
-- Generations other than the live one whose chunks wait, and the models that make their vectors.
SELECT g.id, g.model_key FROM memory.generation g JOIN memory.tenant_state s ON s.tenant_id = g.tenant_id
WHERE g.tenant_id = %(tenant)s AND g.id <> s.live_generation AND g.model_key IS NOT NULL AND EXISTS (
  SELECT FROM memory.embed_queue q WHERE q.tenant_id = g.tenant_id AND q.generation = g.id AND q.not_before <= now())
ORDER BY g.id DESC LIMIT 100

-- name: live_model
-- The live generation, and the model that its replay pins: no process's own takes its place.
SELECT s.live_generation, r.model_key AS pinned FROM memory.tenant_state s
LEFT JOIN memory.transform_run r ON r.tenant_id = s.tenant_id AND r.generation = s.live_generation AND r.pinned
WHERE s.tenant_id = %(tenant)s

-- name: count_live_vectors
-- How many live chunks a model has a vector of.
SELECT count(*) FROM memory.tenant_state s
JOIN {table} e ON e.tenant_id = s.tenant_id AND e.generation = s.live_generation
WHERE s.tenant_id = %(tenant)s
