-- Turns whose vectors hold another's text: a turn is embedded with the one before it among those with the same readers.

-- name: followers
-- Turns of others that may have been embedded with one of some documents' in front: by the place of each of their
-- versions, the next turn, the next with the same readers, and what waits to be embedded anew.
WITH place AS (
  SELECT DISTINCT v.generation, v.thread, v.occurred_at, d.thread_seq, d.owner_principal_id AS owner, d.tags
  FROM memory.version v JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id
  WHERE v.tenant_id = %(tenant)s AND v.document_id = ANY (%(documents)s) AND v.thread IS NOT NULL
)
SELECT f.chunk_id, min(f.owner_id) AS owner_id FROM place p CROSS JOIN LATERAL (
  (SELECT n.chunk_id, n.owner_id FROM memory.search_row n
   WHERE n.tenant_id = %(tenant)s AND n.generation = p.generation AND n.context_key = p.thread
     AND n.document_id <> ALL (%(documents)s) AND (n.occurred_at, n.thread_seq) >= (p.occurred_at, p.thread_seq)
   ORDER BY n.occurred_at, n.thread_seq, n.chunk_id LIMIT 1)
  UNION
  (SELECT n.chunk_id, n.owner_id FROM memory.search_row n
   WHERE n.tenant_id = %(tenant)s AND n.generation = p.generation AND n.context_key = p.thread
     AND n.document_id <> ALL (%(documents)s) AND (n.occurred_at, n.thread_seq) >= (p.occurred_at, p.thread_seq)
     AND n.owner_id = p.owner AND n.access_tags = p.tags
   ORDER BY n.occurred_at, n.thread_seq, n.chunk_id LIMIT 1)
  UNION
  SELECT n.chunk_id, n.owner_id FROM memory.search_row n
  JOIN memory.embed_queue q ON q.tenant_id = %(tenant)s AND q.chunk_id = n.chunk_id
  WHERE n.tenant_id = %(tenant)s AND n.generation = p.generation AND n.context_key = p.thread
    AND n.document_id <> ALL (%(documents)s) AND n.occurred_at >= p.occurred_at
) AS f GROUP BY f.chunk_id ORDER BY f.chunk_id

-- name: lock_rows
-- The documents' searched rows and some others, in the order in which workers lock them: a vector that is being made of
-- the old text is stored before they are dropped, or not at all.
SELECT r.chunk_id, r.owner_id, r.document_id, r.generation, r.thread IS NOT NULL AS turn FROM memory.search_row r
WHERE r.tenant_id = %(tenant)s AND (r.document_id = ANY (%(documents)s) OR r.chunk_id = ANY (%(chunks)s))
ORDER BY r.chunk_id FOR UPDATE

-- name: embed_again
-- They are found by their words until they have been embedded anew. One that is dropped meanwhile is left out.
INSERT INTO memory.embed_queue (tenant_id, chunk_id, generation, owner_id)
SELECT %(tenant)s, r.chunk_id, r.generation, r.owner_id FROM memory.search_row r
WHERE r.tenant_id = %(tenant)s AND r.chunk_id = ANY (%(chunks)s) ORDER BY r.chunk_id FOR KEY SHARE
ON CONFLICT (tenant_id, chunk_id) DO UPDATE SET enqueued_at = clock_timestamp(), not_before = now(), refill = false
