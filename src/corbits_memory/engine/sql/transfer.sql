-- A tenant as lines of JSON, and back. A line is made of named columns: one that is added later is no part of it until it
-- is named here and checked where it is read.

-- name: export_head
-- What the export is of.
SELECT s.live_generation, s.document_count,
  (SELECT jsonb_build_object('model_key', m.model_key, 'model_id', m.model_id, 'dims', m.dims, 'vector_type', m.vector_type)
   FROM memory.embed_model m WHERE m.tenant_id = s.tenant_id AND m.status = 'active') AS model
FROM memory.tenant_state s WHERE s.tenant_id = %(tenant)s

-- name: export_documents
-- The next documents of which something is left to tell to this caller. Of somebody else's it is told what a read of the
-- document tells: not its place among turns that may not be seen, and of its tags (sorted out later) those that let in.
SELECT d.id, w.whole, json_build_object(
  'id', d.id, 'kind', d.kind, 'title', d.title, 'adapter', d.adapter, 'external_ref', d.external_ref,
  'owner_principal_id', d.owner_principal_id, 'attributes', d.attributes, 'thread', d.thread, 'author', d.author,
  'created_at', d.created_at, 'last_seen_at', d.last_seen_at,
  'access_tags', d.access_tags, 'system_tags', d.system_tags,
  'thread_seq', CASE WHEN w.whole THEN d.thread_seq ELSE 0 END) AS row
FROM memory.document d
CROSS JOIN LATERAL (SELECT %(all)s OR d.owner_principal_id = %(principal)s AS whole) AS w
-- LIMIT: a look-up each; before the first ANALYZE a join reads all of the tenant's, for every page.
CROSS JOIN LATERAL (
  SELECT FROM memory.version v
  WHERE v.tenant_id = %(tenant)s AND v.document_id = d.id AND v.generation = %(generation)s AND v.status <> 'tombstoned'
    AND (w.whole OR memory.admits_version(v.status, v.access_tags, d.owner_principal_id, d.tags, d.id, %(principal)s,
                                          %(everything)s, %(allowed)s, %(refused)s, %(vetoed)s))
  LIMIT 1) AS something
WHERE d.tenant_id = %(tenant)s AND d.id > %(after)s
  AND (w.whole OR memory.admits(d.owner_principal_id, d.tags, d.id, %(principal)s, %(everything)s, %(allowed)s, %(refused)s,
                                %(vetoed)s))
ORDER BY d.id LIMIT %(limit)s

-- name: export_versions
-- The next versions of some documents that this caller may see. Somebody else's come without what no read tells: the raw
-- capture, the hash that tells a repeat.
SELECT v.id, v.document_id, v.version, coalesce(octet_length(r.raw_text), 0) AS raw_bytes, n.chunks,
  CASE WHEN w.whole AND r.raw_text IS NOT NULL THEN v.raw_capture_id END AS raw_capture_id,
  json_build_object(
    'id', v.id, 'document_id', v.document_id, 'version', v.version, 'status', v.status, 'title', v.title, 'kind', v.kind,
    'attributes', v.attributes, 'thread', v.thread, 'author', v.author, 'language', v.language,
    'occurred_at', v.occurred_at, 'ingested_at', v.ingested_at, 'superseded_at', v.superseded_at,
    'deprecated_at', v.deprecated_at, 'deprecated_reason', v.deprecated_reason, 'owner_principal_id', v.owner_principal_id,
    'created_by_principal_id', v.created_by_principal_id, 'created_by_kind', v.created_by_kind,
    'generator_agent_id', v.generator_agent_id, 'authority', v.authority, 'actor_count', v.actor_count,
    'has_social_signal', v.has_social_signal, 'source_class', v.source_class, 'provenance', v.provenance,
    'temporal_class', v.temporal_class, 'valid_from', v.valid_from, 'valid_until', v.valid_until,
    'retention_class', v.retention_class, 'chunks', n.chunks,
    'supersedes_version_id', CASE WHEN w.whole THEN v.supersedes_version_id END,
    'raw_capture_id', CASE WHEN w.whole AND r.raw_text IS NOT NULL THEN v.raw_capture_id END,
    'content_hash', CASE WHEN w.whole THEN v.content_hash ELSE 'withheld:' || v.id END,
    'access_tags', v.access_tags) AS row, w.whole
FROM unnest(%(documents)s::text[]) AS x(id)
CROSS JOIN LATERAL (
  SELECT * FROM memory.document o WHERE o.tenant_id = %(tenant)s AND o.id = x.id LIMIT 1) AS d
CROSS JOIN LATERAL (SELECT %(all)s OR d.owner_principal_id = %(principal)s AS whole) AS w
CROSS JOIN LATERAL (
  SELECT * FROM memory.version o
  WHERE o.tenant_id = %(tenant)s AND o.document_id = x.id AND o.generation = %(generation)s AND o.status <> 'tombstoned'
    AND (o.document_id, o.version) > (%(after_document)s, %(after_version)s)
    AND (w.whole OR memory.admits_version(o.status, o.access_tags, d.owner_principal_id, d.tags, d.id, %(principal)s,
                                          %(everything)s, %(allowed)s, %(refused)s, %(vetoed)s))
  ORDER BY o.version LIMIT %(limit)s) AS v
CROSS JOIN LATERAL (
  SELECT count(*) AS chunks FROM memory.chunk c WHERE c.tenant_id = %(tenant)s AND c.version_id = v.id) AS n
LEFT JOIN LATERAL (
  SELECT * FROM memory.raw_capture o WHERE o.tenant_id = %(tenant)s AND o.id = v.raw_capture_id LIMIT 1) AS r ON true
ORDER BY v.document_id, v.version LIMIT %(limit)s

-- name: export_raw_captures
-- What versions were made from.
SELECT r.id, json_build_object('id', r.id, 'adapter', r.adapter, 'external_ref', r.external_ref, 'fetched_at', r.fetched_at,
  'content_type', r.content_type, 'raw_text', r.raw_text, 'metadata', r.metadata, 'source_hash', r.source_hash) AS row
FROM memory.raw_capture r WHERE r.tenant_id = %(tenant)s AND r.id = ANY (%(captures)s) AND r.raw_text IS NOT NULL

-- name: export_chunks
-- Their text, a page at a time.
SELECT c.id, c.version_id, c.ordinal, json_build_object('id', c.id, 'version_id', c.version_id, 'document_id', c.document_id,
  'ordinal', c.ordinal, 'text', c.text, 'role', c.role, 'token_count', c.token_count, 'created_at', c.created_at) AS row
FROM memory.chunk c
WHERE c.tenant_id = %(tenant)s AND c.version_id = ANY (%(versions)s)
  AND (c.version_id, c.ordinal) > (%(after_version)s, %(after_ordinal)s)
ORDER BY c.version_id, c.ordinal LIMIT %(limit)s

-- name: export_vectors
-- The vectors of the caller's own text. One that waits to be made anew holds what it should not.
SELECT e.chunk_id, e.embedding::text FROM {table} e
WHERE e.tenant_id = %(tenant)s AND e.chunk_id = ANY (%(chunks)s) AND (%(all)s OR e.owner_id = %(principal)s)
  AND NOT EXISTS (SELECT FROM memory.embed_queue q WHERE q.tenant_id = %(tenant)s AND q.chunk_id = e.chunk_id
                  AND NOT q.refill)

-- name: turns_before
-- With which turn's text some turns are embedded: the one before, among those with the same readers.
SELECT r.chunk_id, p.chunk_id AS previous FROM memory.search_row r
CROSS JOIN LATERAL (
  SELECT b.chunk_id FROM memory.search_row b
  WHERE b.tenant_id = %(tenant)s AND b.generation = r.generation AND b.context_key = r.context_key
    AND b.owner_id = r.owner_id AND b.access_tags = r.access_tags
    AND (b.occurred_at, b.thread_seq, b.chunk_id) < (r.occurred_at, r.thread_seq, r.chunk_id)
  ORDER BY b.occurred_at DESC, b.thread_seq DESC, b.chunk_id DESC LIMIT 1) AS p
WHERE r.tenant_id = %(tenant)s AND r.chunk_id = ANY (%(chunks)s) AND r.thread IS NOT NULL

-- name: export_version_edges
-- Which versions some versions refer to: of those, what the caller may see.
SELECT e.from_ref, json_build_object('id', e.id, 'rel', e.rel, 'from_type', e.from_type, 'from_ref', e.from_ref,
  'to_type', e.to_type, 'to_ref', e.to_ref, 'created_at', e.created_at) AS row
FROM memory.edge e
WHERE e.tenant_id = %(tenant)s AND e.from_type = 'version' AND e.from_ref = ANY (%(versions)s)
  AND (%(all)s OR EXISTS (
    SELECT FROM memory.version s JOIN memory.document o ON o.tenant_id = %(tenant)s AND o.id = s.document_id
    WHERE s.tenant_id = %(tenant)s AND e.to_type = 'version' AND s.id = e.to_ref AND s.status <> 'tombstoned'
      AND memory.admits_version(s.status, s.access_tags, o.owner_principal_id, o.tags, o.id, %(principal)s,
        %(everything)s, %(allowed)s, %(refused)s, %(vetoed)s)))
ORDER BY e.from_ref, e.id

-- name: export_document_edges
-- What some documents are about, a page at a time, with the entities that they name. For a caller: of its own documents,
-- and labels of entities that nobody else's name, since those may have given them.
SELECT e.from_ref, e.id, json_build_object('id', e.id, 'rel', e.rel, 'from_type', e.from_type, 'from_ref', e.from_ref,
    'to_type', e.to_type, 'to_ref', e.to_ref, 'created_at', e.created_at) AS row,
  CASE WHEN n.id IS NOT NULL THEN json_build_object('id', n.id, 'kind', n.kind,
    'identifiers', jsonb_build_object('value', n.identifiers ->> 'value'), 'created_at', n.created_at,
    'updated_at', n.updated_at, 'label', CASE WHEN %(all)s OR (
      SELECT count(*) <= 1000 AND bool_and(named.own) FROM (
        SELECT coalesce(o.owner_principal_id = %(principal)s, false) AS own FROM memory.edge g
        LEFT JOIN memory.document o ON o.tenant_id = %(tenant)s AND g.from_type = 'document' AND o.id = g.from_ref
        WHERE g.tenant_id = %(tenant)s AND g.to_type = 'entity' AND g.to_ref = n.id LIMIT 1001) AS named
    ) THEN n.label END) END AS entity
FROM memory.edge e
LEFT JOIN memory.entity n ON n.tenant_id = %(tenant)s AND e.to_type = 'entity' AND n.id = e.to_ref
WHERE e.tenant_id = %(tenant)s AND e.from_type = 'document' AND e.from_ref = ANY (%(documents)s)
  AND (e.from_ref, e.id) > (%(after_document)s, %(after_edge)s)
ORDER BY e.from_ref, e.id LIMIT %(limit)s

-- name: hold_erasures
-- No document of the tenant is forgotten or purged before this transaction ends; restores don't wait for each other.
SELECT pg_advisory_xact_lock_shared(hashtext('memory.erasure'), hashtext(%(tenant)s))

-- name: restore_documents
-- Documents. One whose reference is another's here is left out, with all that hangs on it.
INSERT INTO memory.document (tenant_id, id, kind, title, adapter, external_ref, owner_principal_id, access_tags,
  system_tags, attributes, thread, thread_seq, author, created_at, last_seen_at)
SELECT %(tenant)s, x.id, x.kind, x.title, x.adapter, x.external_ref, x.owner_principal_id, x.access_tags, x.system_tags,
  x.attributes, x.thread, x.thread_seq, x.author, x.created_at, x.last_seen_at
FROM json_populate_recordset(NULL::memory.document, %(rows)s::json) AS x
ORDER BY x.adapter COLLATE "C", x.external_ref COLLATE "C"
ON CONFLICT DO NOTHING
RETURNING id

-- name: lock_documents
-- Those that are here, held against captures and changes of their tags.
SELECT d.id, d.owner_principal_id, d.adapter, d.external_ref, d.access_tags, d.system_tags FROM memory.document d
WHERE d.tenant_id = %(tenant)s AND d.id = ANY (%(documents)s) ORDER BY d.id FOR UPDATE

-- name: erasures
-- What the ledger says of documents.
SELECT e.document_id, bool_or(e.kind = 'purge') AS purged, max(e.at) AS forgotten_at FROM memory.erasure e
WHERE e.tenant_id = %(tenant)s AND e.document_id = ANY (%(documents)s) GROUP BY e.document_id

-- name: erased_captures
-- Raw captures that were emptied or removed here.
SELECT DISTINCT e.raw_capture_id AS id FROM memory.erasure e
WHERE e.tenant_id = %(tenant)s AND e.raw_capture_id = ANY (%(captures)s)

-- name: known_versions
-- Versions that are here, with the chunks that they have.
SELECT v.id, v.document_id, v.version, v.content_hash, v.status, ARRAY(
  SELECT c.id FROM memory.chunk c WHERE c.tenant_id = %(tenant)s AND c.version_id = v.id ORDER BY c.ordinal) AS chunks
FROM memory.version v WHERE v.tenant_id = %(tenant)s AND v.id = ANY (%(versions)s)

-- name: taken_places
-- Versions whose number, or whose being the active one, is another's here.
SELECT x.id FROM json_to_recordset(%(rows)s::json) AS x(id text, document_id text, version integer, status text)
WHERE EXISTS (
  SELECT FROM memory.version v WHERE v.tenant_id = %(tenant)s AND v.document_id = x.document_id
    AND v.generation = %(generation)s AND (v.version = x.version OR (v.status = 'active' AND x.status = 'active')))

-- name: restore_raw_captures
-- Payloads; one that is here already stays.
INSERT INTO memory.raw_capture (tenant_id, id, adapter, external_ref, fetched_at, content_type, raw_text, metadata,
  source_hash)
SELECT %(tenant)s, x.id, x.adapter, x.external_ref, x.fetched_at, x.content_type, x.raw_text, x.metadata, x.source_hash
FROM json_populate_recordset(NULL::memory.raw_capture, %(rows)s::json) AS x
ORDER BY x.source_hash COLLATE "C"
ON CONFLICT DO NOTHING

-- name: known_captures
-- Raw captures by id or by what they hold.
SELECT r.id, r.adapter, r.external_ref, r.source_hash FROM memory.raw_capture r
WHERE r.tenant_id = %(tenant)s AND r.id = ANY (%(captures)s)
UNION
SELECT r.id, r.adapter, r.external_ref, r.source_hash FROM memory.raw_capture r
WHERE r.tenant_id = %(tenant)s AND r.source_hash = ANY (%(hashes)s::text[])

-- name: restore_versions
-- Versions, in the generation that is live here.
INSERT INTO memory.version (tenant_id, id, document_id, version, supersedes_version_id, status, content_hash, title, kind,
  attributes, access_tags, thread, author, language, occurred_at, ingested_at, superseded_at, deprecated_at,
  deprecated_reason, owner_principal_id, created_by_principal_id, created_by_kind, generator_agent_id, authority,
  actor_count, has_social_signal, source_class, raw_capture_id, generation, provenance, temporal_class, valid_from,
  valid_until, retention_class)
SELECT %(tenant)s, x.id, x.document_id, x.version, x.supersedes_version_id, x.status, x.content_hash, x.title, x.kind,
  x.attributes, x.access_tags, x.thread, x.author, x.language, x.occurred_at, x.ingested_at, x.superseded_at,
  x.deprecated_at, x.deprecated_reason, x.owner_principal_id, x.created_by_principal_id, x.created_by_kind,
  x.generator_agent_id, x.authority, x.actor_count, x.has_social_signal, x.source_class, x.raw_capture_id,
  %(generation)s, x.provenance, x.temporal_class, x.valid_from, x.valid_until, x.retention_class
FROM json_populate_recordset(NULL::memory.version, %(rows)s::json) AS x
ON CONFLICT DO NOTHING
RETURNING id

-- name: show_newest
-- Documents show what became their active version.
UPDATE memory.document d SET title = v.title, kind = v.kind, attributes = v.attributes, author = v.author, thread = v.thread
FROM memory.version v
WHERE v.tenant_id = %(tenant)s AND v.id = ANY (%(versions)s) AND v.status = 'active'
  AND d.tenant_id = %(tenant)s AND d.id = v.document_id

-- name: restore_chunks
-- Text.
INSERT INTO memory.chunk (tenant_id, id, version_id, document_id, ordinal, text, role, token_count, created_at)
SELECT %(tenant)s, x.id, x.version_id, x.document_id, x.ordinal, x.text, x.role, x.token_count, x.created_at
FROM json_to_recordset(%(rows)s::json) AS x(id text, version_id text, document_id text, ordinal integer, text text,
  role text, token_count integer, created_at timestamptz)
ON CONFLICT DO NOTHING
RETURNING id

-- name: restore_search_rows
-- What search reads, analysed here.
INSERT INTO memory.search_row (tenant_id, chunk_id, generation, document_id, version_id, ordinal, status, owner_id,
  access_tags, kind, attributes, thread, thread_seq, context_key, author, occurred_at, valid_from, valid_until,
  temporal_class, authority, words, asks, language, fts, terms, lex)
SELECT %(tenant)s, x.id, %(generation)s, v.document_id, v.id, x.ordinal, v.status, d.owner_principal_id,
  memory.version_tags(v.status, v.access_tags, d.tags), v.kind,
  nullif(v.attributes, '{}'), v.thread, d.thread_seq,
  x.context_key, v.author, v.occurred_at, v.valid_from, v.valid_until, v.temporal_class, v.authority, x.words, x.asks, v.language, a.fts, i.terms, i.lex
FROM json_to_recordset(%(rows)s::json) AS x(id text, version_id text, ordinal integer, context_key text, head text,
  body text, words integer, asks boolean)
CROSS JOIN LATERAL (
  SELECT * FROM memory.version o WHERE o.tenant_id = %(tenant)s AND o.id = x.version_id LIMIT 1) AS v
CROSS JOIN LATERAL (
  SELECT * FROM memory.document o WHERE o.tenant_id = %(tenant)s AND o.id = v.document_id LIMIT 1) AS d
CROSS JOIN LATERAL (SELECT memory.analyse(v.language, x.head, x.body) AS fts OFFSET 0) AS a
CROSS JOIN LATERAL memory.index_terms(memory.term_seed(%(tenant)s, %(generation)s), a.fts) AS i
RETURNING chunk_id, owner_id

-- name: restore_entities
-- Entities; one that is here under another id keeps it, and the edges follow. A label may be the word of what was erased
-- here: where anything was, it waits for the next capture that gives one.
INSERT INTO memory.entity (tenant_id, id, kind, identifiers, label, created_at, updated_at)
SELECT %(tenant)s, x.id, x.kind, jsonb_build_object('value', x.value),
  CASE WHEN NOT EXISTS (SELECT FROM memory.erasure e WHERE e.tenant_id = %(tenant)s) THEN x.label END,
  x.created_at, x.updated_at
FROM json_to_recordset(%(rows)s::json) AS x(id text, kind text, value text, label text, created_at timestamptz,
  updated_at timestamptz)
ORDER BY x.kind COLLATE "C", x.value COLLATE "C"
ON CONFLICT DO NOTHING

-- name: entity_ids
-- What entities of the export are called here.
SELECT x.id AS exported, n.id FROM json_to_recordset(%(rows)s::json) AS x(id text, kind text, value text)
JOIN memory.entity n ON n.tenant_id = %(tenant)s AND n.kind = x.kind AND n.identifiers ->> 'value' = x.value

-- name: restore_edges
-- Edges, each once.
INSERT INTO memory.edge (tenant_id, id, rel, from_type, from_ref, to_type, to_ref, created_at)
SELECT %(tenant)s, x.id, x.rel, x.from_type, x.from_ref, x.to_type, x.to_ref, x.created_at
FROM json_populate_recordset(NULL::memory.edge, %(rows)s::json) AS x
ORDER BY x.from_type COLLATE "C", x.from_ref COLLATE "C", x.rel COLLATE "C", x.to_type COLLATE "C", x.to_ref COLLATE "C"
ON CONFLICT DO NOTHING

-- name: missing_edges
-- Those that are not here under any id.
SELECT x.id FROM json_populate_recordset(NULL::memory.edge, %(rows)s::json) AS x
WHERE NOT EXISTS (SELECT FROM memory.edge e WHERE e.tenant_id = %(tenant)s AND e.from_type = x.from_type
                  AND e.from_ref = x.from_ref AND e.rel = x.rel AND e.to_type = x.to_type AND e.to_ref = x.to_ref)

-- name: carried_tags
-- The tags of what documents were made from: those that it has now, and those that it had then.
SELECT v.document_id AS id, array_agg(DISTINCT t.tag) AS tags
FROM memory.version v
JOIN memory.edge e ON e.tenant_id = %(tenant)s AND e.from_type = 'version' AND e.from_ref = v.id
  AND e.rel = 'derived_from' AND e.to_type = 'version'
JOIN memory.version s ON s.tenant_id = %(tenant)s AND s.id = e.to_ref
JOIN memory.document o ON o.tenant_id = %(tenant)s AND o.id = s.document_id
CROSS JOIN LATERAL unnest(o.tags || s.access_tags) AS t(tag)
WHERE v.tenant_id = %(tenant)s AND v.document_id = ANY (%(documents)s)
GROUP BY v.document_id
