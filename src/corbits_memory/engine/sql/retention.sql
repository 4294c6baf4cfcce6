-- Retention classes, deprecation, the sweep.

-- name: lock_document_of
-- The document of a version, before the version itself, as captures lock them: its tags stay what they are to the end.
SELECT FROM memory.document d
WHERE d.tenant_id = %(tenant)s AND d.id = (
  SELECT v.document_id FROM memory.version v WHERE v.tenant_id = %(tenant)s AND v.id = %(version)s)
FOR NO KEY UPDATE

-- name: find_version
-- A version with what decides who may change it. Its row stays ours to the end.
SELECT v.id, v.document_id, v.status, v.retention_class, v.generation, v.feed_seq, v.raw_capture_id,
  v.access_tags, d.owner_principal_id, d.tags
FROM memory.version v JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id
WHERE v.tenant_id = %(tenant)s AND v.id = %(version)s FOR UPDATE OF v

-- name: set_class
-- Of the version, and of what replays made from the same capture: else a promotion would lift a hold.
UPDATE memory.version v SET retention_class = %(class)s
WHERE v.tenant_id = %(tenant)s AND v.retention_class <> %(class)s AND (v.id = %(version)s OR (
  v.document_id = %(document)s AND v.raw_capture_id = %(capture)s AND v.generation <> %(generation)s))

-- name: expired
-- A batch of what has expired, without waiting for whoever is changing one of them or its document. Past valid_until;
-- without one, an ephemeral version by its age, and one that only mirrors a source by when its source was last seen.
SELECT v.id, v.document_id, v.generation, v.feed_seq, v.retention_class
FROM memory.version v JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id
WHERE v.tenant_id = %(tenant)s AND v.status = 'active' AND v.retention_class IN ('ephemeral', 'source_only')
  AND v.retention_class = %(class)s AND v.id > %(after)s
  AND CASE WHEN v.valid_until IS NOT NULL THEN v.valid_until < %(now)s
           WHEN v.retention_class = 'ephemeral' THEN v.ingested_at < %(before)s
           ELSE greatest(d.last_seen_at, v.ingested_at) < %(before)s END
ORDER BY v.id LIMIT %(limit)s FOR NO KEY UPDATE OF d SKIP LOCKED FOR UPDATE OF v SKIP LOCKED

-- name: deprecate
-- Out of use: no longer active, still found on request.
UPDATE memory.version v SET status = 'deprecated', deprecated_at = now(), deprecated_reason = x.reason
FROM unnest(%(versions)s::text[], %(reasons)s::text[]) AS x(id, reason)
WHERE v.tenant_id = %(tenant)s AND v.id = x.id

-- name: deprecate_rows
-- Their documents are locked. In key order, as workers lock them.
WITH found AS (
  SELECT r.chunk_id, r.version_id FROM memory.search_row r
  WHERE r.tenant_id = %(tenant)s AND r.document_id = ANY (%(documents)s) AND r.version_id = ANY (%(versions)s)
  ORDER BY r.chunk_id FOR NO KEY UPDATE
)
UPDATE memory.search_row r SET status = 'deprecated',
  access_tags = memory.version_tags('deprecated', v.access_tags, d.tags)
FROM found
JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.id = found.version_id
JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id
WHERE r.tenant_id = %(tenant)s AND r.chunk_id = found.chunk_id
RETURNING r.chunk_id

-- name: deprecate_vectors
-- Vectors carry the status and the tags that their searches filter by.
UPDATE {table} e SET status = r.status, access_tags = r.access_tags FROM memory.search_row r
WHERE e.tenant_id = %(tenant)s AND e.chunk_id = ANY (%(chunks)s) AND r.tenant_id = %(tenant)s AND r.chunk_id = e.chunk_id

-- name: owned
-- The next documents of a principal, with what a purge of each would take.
SELECT d.id AS document_id, count(v.id) AS versions,
  coalesce(bool_or(v.retention_class = 'durable' AND v.status <> 'tombstoned'), false) AS held
FROM (SELECT o.id FROM memory.document o WHERE o.tenant_id = %(tenant)s AND o.owner_principal_id = %(principal)s
        AND o.id > %(after)s ORDER BY o.id LIMIT %(limit)s) AS d
LEFT JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.document_id = d.id
GROUP BY d.id ORDER BY d.id
