-- Forget and purge: every place in which a document's content stands, in the order in which it is taken away.

-- name: lock_document
-- The document, held against captures and other changes to the end.
SELECT d.owner_principal_id, d.tags, d.adapter, d.external_ref, d.thread_seq
FROM memory.document d WHERE d.tenant_id = %(tenant)s AND d.id = %(document)s FOR UPDATE

-- name: hold_restores
-- No batch of an import is written until this transaction ends, and one that is being written is waited for: it may put
-- a turn behind this document's, with a vector that holds its text.
SELECT pg_advisory_xact_lock(hashtext('memory.erasure'), hashtext(%(tenant)s))

-- name: hold_for_replay
-- The documents of some raw captures: none of them is forgotten or purged before this transaction ends, and one that
-- is being erased is waited for. A look-up each: planners take a reference for no key, and would read all documents.
SELECT FROM memory.document d WHERE d.tenant_id = %(tenant)s AND d.id = ANY (ARRAY(
  SELECT (SELECT o.id FROM memory.document o
          WHERE o.tenant_id = %(tenant)s AND o.adapter = r.adapter AND o.external_ref = r.external_ref LIMIT 1)
  FROM memory.raw_capture r WHERE r.tenant_id = %(tenant)s AND r.id = ANY (%(captures)s)))
ORDER BY d.id FOR KEY SHARE

-- name: replayable
-- Those that are there and not in the ledger.
SELECT r.id FROM memory.raw_capture r WHERE r.tenant_id = %(tenant)s AND r.id = ANY (%(captures)s)
  AND NOT EXISTS (SELECT FROM memory.erasure e WHERE e.tenant_id = %(tenant)s AND e.raw_capture_id = r.id)
ORDER BY r.id

-- name: lock_versions
-- Its versions in all generations.
SELECT v.id, v.version, v.status, v.access_tags, v.retention_class, v.generation, v.feed_seq FROM memory.version v
WHERE v.tenant_id = %(tenant)s AND v.document_id = %(document)s ORDER BY v.id FOR UPDATE

-- name: hold_statistics
-- A recount of the terms waits for this one, and this one for it.
SELECT pg_advisory_xact_lock(hashtext('memory.term_stat'), hashtext(%(tenant)s))
FROM memory.tenant_state s WHERE s.tenant_id = %(tenant)s AND s.stats_rows IS NOT NULL

-- name: drop_failures
-- What distillers noted of failures with it may quote it.
DELETE FROM memory.distill_failure f WHERE f.tenant_id = %(tenant)s AND f.version_id = ANY (%(versions)s)

-- name: drop_terms
-- Terms are counted in fewer rows, if they were counted with these.
WITH gone AS (
  SELECT r.generation, t.term, count(*) AS rows
  FROM memory.tenant_state s
  JOIN memory.search_row r ON r.tenant_id = %(tenant)s AND r.document_id = %(document)s
  JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.id = r.version_id AND v.ingested_at < s.stats_at
  CROSS JOIN LATERAL unnest(r.terms) AS t(term)
  WHERE s.tenant_id = %(tenant)s
  GROUP BY r.generation, t.term
)
UPDATE memory.term_stat t SET df = t.df - gone.rows FROM gone
WHERE t.tenant_id = %(tenant)s AND t.generation = gone.generation AND t.term = gone.term

-- name: drop_empty_terms
-- What stands nowhere any more is not told of; nor are counts of no epoch, that a promotion made ahead.
DELETE FROM memory.term_stat t USING memory.tenant_state s
WHERE t.tenant_id = %(tenant)s AND s.tenant_id = %(tenant)s
  AND (t.df <= 0 OR t.generation <> s.live_generation)

-- name: superseded_since_counted
-- Whether the counts hold text of this document that had left the searched rows before: then all is counted anew.
SELECT FROM memory.tenant_state s JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.document_id = %(document)s
  AND v.ingested_at < s.stats_at AND v.superseded_at >= s.stats_at
WHERE s.tenant_id = %(tenant)s LIMIT 1

-- name: named_entities
-- Entities that the document names, locked in the order in which captures write them.
SELECT e.id FROM memory.entity e
WHERE e.tenant_id = %(tenant)s AND e.id IN (
  SELECT g.to_ref FROM memory.edge g WHERE g.tenant_id = %(tenant)s AND g.to_type = 'entity' AND (
    (g.from_type = 'document' AND g.from_ref = %(document)s)
    OR (g.from_type = 'version' AND g.from_ref = ANY (%(versions)s))
    OR (g.from_type = 'chunk' AND g.from_ref = ANY (%(chunks)s))))
ORDER BY e.kind, (e.identifiers ->> 'value') COLLATE "C" FOR UPDATE

-- name: drop_edges
-- What the document said of others, and what stood on its chunks. What it was derived from are ids: they stay with
-- the versions, so that what was made from it can be found again.
DELETE FROM memory.edge g WHERE g.tenant_id = %(tenant)s AND (
  (g.from_type = 'document' AND g.from_ref = %(document)s)
  OR (g.from_type = 'version' AND g.from_ref = ANY (%(versions)s)
      AND NOT (g.to_type = 'version' AND g.rel = 'derived_from'))
  OR (g.from_type = 'chunk' AND g.from_ref = ANY (%(chunks)s))
  OR (g.to_type = 'chunk' AND g.to_ref = ANY (%(chunks)s)))

-- name: drop_all_edges
-- Every edge of the document, its versions and chunks, at either end.
DELETE FROM memory.edge g WHERE g.tenant_id = %(tenant)s AND (
  (g.from_type = 'document' AND g.from_ref = %(document)s)
  OR (g.from_type = 'version' AND g.from_ref = ANY (%(versions)s))
  OR (g.from_type = 'chunk' AND g.from_ref = ANY (%(chunks)s))
  OR (g.to_type = 'document' AND g.to_ref = %(document)s)
  OR (g.to_type = 'version' AND g.to_ref = ANY (%(versions)s))
  OR (g.to_type = 'chunk' AND g.to_ref = ANY (%(chunks)s)))

-- name: drop_entities
-- Entities that nothing names any more.
DELETE FROM memory.entity e WHERE e.tenant_id = %(tenant)s AND e.id = ANY (%(entities)s)
  AND NOT EXISTS (SELECT FROM memory.edge g WHERE g.tenant_id = %(tenant)s AND g.to_type = 'entity' AND g.to_ref = e.id)
  AND NOT EXISTS (SELECT FROM memory.edge g WHERE g.tenant_id = %(tenant)s AND g.from_type = 'entity' AND g.from_ref = e.id)

-- name: unlabel_entities
-- The labels of those that stay may be this document's words; the next capture that gives one sets it again.
UPDATE memory.entity e SET label = NULL, updated_at = now()
WHERE e.tenant_id = %(tenant)s AND e.id = ANY (%(entities)s) AND e.label IS NOT NULL

-- name: chunks
-- Ids of the document's chunks.
SELECT c.id FROM memory.version v
JOIN memory.chunk c ON c.tenant_id = %(tenant)s AND c.version_id = v.id
WHERE v.tenant_id = %(tenant)s AND v.document_id = %(document)s

-- name: drop_chunks
-- The text; searched rows, queue entries and vectors go along.
DELETE FROM memory.chunk c WHERE c.tenant_id = %(tenant)s AND c.version_id = ANY (%(versions)s)
  AND c.version_id IS NOT NULL

-- name: raw_captures
-- What the document was captured from.
SELECT r.id FROM memory.raw_capture r
WHERE r.tenant_id = %(tenant)s AND r.adapter = %(adapter)s AND r.external_ref = %(external_ref)s
UNION
SELECT v.raw_capture_id FROM memory.version v
WHERE v.tenant_id = %(tenant)s AND v.document_id = %(document)s AND v.raw_capture_id IS NOT NULL
ORDER BY 1

-- name: empty_raw_captures
-- The rows stay, since versions refer to them; replays leave them alone.
UPDATE memory.raw_capture r SET raw_text = NULL, raw_bytes = NULL, metadata = '{}', source_hash = 'erased:' || r.id,
  external_ref = %(erased_ref)s
WHERE r.tenant_id = %(tenant)s AND r.id = ANY (%(captures)s)

-- name: drop_raw_captures
-- Rows that no version refers to any more.
DELETE FROM memory.raw_capture r WHERE r.tenant_id = %(tenant)s AND r.id = ANY (%(captures)s)

-- name: empty_versions
-- What is left of a version: its number, who wrote it, when it came in.
UPDATE memory.version v SET status = 'tombstoned', title = '', kind = 'erased', attributes = '{}', access_tags = '{}',
  thread = NULL, author = NULL, content_hash = 'erased:' || v.id, occurred_at = v.ingested_at, valid_from = NULL,
  valid_until = NULL, generator_agent_id = NULL, deprecated_reason = NULL
WHERE v.tenant_id = %(tenant)s AND v.id = ANY (%(versions)s)

-- name: empty_document
-- What is left of a document: its owner, and its reference as a hash.
UPDATE memory.document d SET title = '', kind = 'erased', external_ref = %(erased_ref)s, access_tags = '{}',
  system_tags = %(tags)s, attributes = '{}', thread = NULL, thread_seq = 0, author = NULL
WHERE d.tenant_id = %(tenant)s AND d.id = %(document)s

-- name: drop_document
-- The row, and by cascade its versions, chunks, searched rows, queue entries and vectors.
DELETE FROM memory.document d WHERE d.tenant_id = %(tenant)s AND d.id = %(document)s

-- name: enter_ledger
-- No replay makes these again.
INSERT INTO memory.erasure (tenant_id, id, kind, document_id, raw_capture_id, adapter, by_principal_id)
SELECT %(tenant)s, x.id, %(kind)s, %(document)s, x.raw_capture_id, %(adapter)s, %(principal)s
FROM unnest(%(ids)s::text[], %(captures)s::text[]) AS x(id, raw_capture_id)

-- name: finish
-- The last step: the feed hears, in commit order, which versions are gone.
WITH counter AS (
  UPDATE memory.tenant_state s SET feed_seq = s.feed_seq + cardinality(%(retracted)s::text[]),
    document_count = greatest(0, s.document_count - %(documents)s), chunk_count = greatest(0, s.chunk_count - %(rows)s),
    stats_at = CASE WHEN %(recount)s THEN NULL ELSE s.stats_at END
  WHERE s.tenant_id = %(tenant)s RETURNING s.feed_seq - cardinality(%(retracted)s::text[]) AS base
)
INSERT INTO memory.feed_event (tenant_id, seq, op, version_id, document_id, owner_id, tags)
SELECT %(tenant)s, counter.base + v.place, 'retract', v.id, d.document_id, d.owner_id, d.tags
FROM counter, unnest(%(retracted)s::text[]) WITH ORDINALITY AS v(id, place)
CROSS JOIN LATERAL (
  -- Of a document that is emptied or gone by now its owner and tags were noted before; else it still says them.
  SELECT %(document)s::text AS document_id, %(owner)s::text AS owner_id, %(tags)s::text[] AS tags
  WHERE %(document)s::text IS NOT NULL
  UNION ALL
  SELECT n.document_id, m.owner_principal_id, m.tags FROM memory.version n
  JOIN memory.document m ON m.tenant_id = %(tenant)s AND m.id = n.document_id
  WHERE %(document)s::text IS NULL AND n.tenant_id = %(tenant)s AND n.id = v.id) AS d

-- name: derived
-- Documents made from some versions, directly or by way of others, that are not forgotten yet and that the caller
-- may see; with everything, all of them.
WITH RECURSIVE claim(id) AS (
  SELECT g.from_ref FROM memory.edge g WHERE g.tenant_id = %(tenant)s AND g.to_type = 'version'
    AND g.to_ref = ANY (%(versions)s) AND g.rel = 'derived_from' AND g.from_type = 'version'
  UNION
  SELECT g.from_ref FROM claim JOIN memory.edge g ON g.tenant_id = %(tenant)s AND g.to_type = 'version'
    AND g.to_ref = claim.id AND g.rel = 'derived_from' AND g.from_type = 'version'
)
SELECT d.id AS document_id, max(v.id) AS version_id, d.owner_principal_id AS owner
FROM claim
JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.id = claim.id AND v.status <> 'tombstoned'
JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id AND d.id <> %(document)s
WHERE %(all)s OR memory.admits_version(v.status, v.access_tags, d.owner_principal_id, d.tags, d.id, %(principal)s,
  %(everything)s, %(allowed)s, %(refused)s, %(vetoed)s)
GROUP BY d.id, d.owner_principal_id ORDER BY d.id LIMIT %(limit)s
