-- The write path. Rows come as one JSON array a statement: a single document is a batch of one.

-- name: lock_tenant
-- The live generation; held until commit, so that a promotion waits for writers and they for it.
SELECT live_generation FROM memory.tenant_state WHERE tenant_id = %(tenant)s FOR KEY SHARE

-- name: create_tenant
-- The tenant's row, when this is its first capture.
INSERT INTO memory.tenant_state (tenant_id) VALUES (%(tenant)s) ON CONFLICT DO NOTHING

-- name: citable_versions
-- Of the versions that documents refer to, those that this caller may see.
SELECT v.id, d.owner_principal_id, d.tags
FROM memory.version v
JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id
WHERE v.tenant_id = %(tenant)s AND v.id = ANY (%(ids)s) AND v.status <> 'tombstoned'
  AND memory.admits_version(v.status, v.access_tags, d.owner_principal_id, d.tags, d.id, %(principal)s, %(everything)s,
    %(allowed)s, %(refused)s, %(vetoed)s)

-- name: claim_documents
-- Find or create the documents, in key order so that batches never wait for each other in a circle, and lock them.
WITH x AS MATERIALIZED (
  SELECT * FROM json_to_recordset(%(rows)s::json) AS x(position integer, id text, kind text, title text, adapter text,
    external_ref text, access_tags text[], system_tags text[], attributes jsonb, thread text, author text)
), taken AS MATERIALIZED (
  SELECT t.thread, coalesce((
    SELECT d.thread_seq FROM memory.document d WHERE d.tenant_id = %(tenant)s AND d.thread = t.thread
    ORDER BY d.thread_seq DESC LIMIT 1), 0) AS last
  FROM (SELECT DISTINCT x.thread FROM x WHERE x.thread IS NOT NULL) AS t
)
INSERT INTO memory.document (tenant_id, id, kind, title, adapter, external_ref, owner_principal_id, access_tags,
  system_tags, attributes, thread, thread_seq, author)
SELECT %(tenant)s, x.id, x.kind, x.title, x.adapter, x.external_ref, %(principal)s, x.access_tags, x.system_tags,
  x.attributes, x.thread,
  CASE WHEN x.thread IS NULL THEN 0
       ELSE row_number() OVER (PARTITION BY x.thread ORDER BY x.position) + taken.last END,
  x.author
FROM x LEFT JOIN taken ON taken.thread = x.thread
ORDER BY x.adapter COLLATE "C", x.external_ref COLLATE "C"
ON CONFLICT (tenant_id, adapter, external_ref) WHERE external_ref IS NOT NULL DO UPDATE SET last_seen_at =
  CASE WHEN document.owner_principal_id = excluded.owner_principal_id THEN now() ELSE document.last_seen_at END
RETURNING adapter, external_ref, id, owner_principal_id, thread, thread_seq, access_tags, system_tags, xmax = 0 AS fresh

-- name: has_forgotten
-- Whether anything of these adapters is forgotten: else a capture need not ask for each of its references. Theirs begin
-- with erased: and are a range of the index.
SELECT EXISTS (
  SELECT FROM memory.document d
  WHERE d.tenant_id = %(tenant)s AND d.adapter = ANY (%(adapters)s) AND d.external_ref >= 'erased:'
    AND d.external_ref < 'erased;' AND d.external_ref IS NOT NULL) AS found

-- name: forgotten_documents
-- Documents that were forgotten and whose references these are; locked, in the order in which all lock them.
SELECT d.adapter, d.external_ref, d.id, d.owner_principal_id, d.access_tags, d.system_tags
FROM unnest(%(adapters)s::text[], %(refs)s::text[]) AS x(adapter, external_ref)
JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.adapter = x.adapter AND d.external_ref = x.external_ref
  AND d.external_ref IS NOT NULL
ORDER BY d.id FOR UPDATE OF d

-- name: drop_claims
-- Rows that this transaction made and needs no more.
DELETE FROM memory.document d WHERE d.tenant_id = %(tenant)s AND d.id = ANY (%(documents)s)

-- name: rename_documents
-- Forgotten documents that are added to anew have their references again.
UPDATE memory.document d SET external_ref = x.external_ref, thread_seq = x.thread_seq
FROM jsonb_to_recordset(%(rows)s) AS x(id text, external_ref text, thread_seq bigint)
WHERE d.tenant_id = %(tenant)s AND d.id = x.id

-- name: current_versions
-- What is active now, and the highest number, of known documents.
SELECT d.id AS document_id, a.id AS active_id, a.version AS active_version, a.content_hash, m.version AS last_version,
  coalesce(a.retention_class, m.retention_class) AS retention_class
FROM unnest(%(documents)s::text[]) AS d(id)
LEFT JOIN memory.version a ON a.tenant_id = %(tenant)s AND a.document_id = d.id AND a.generation = %(generation)s
  AND a.status = 'active'
LEFT JOIN LATERAL (
  SELECT v.version, v.retention_class FROM memory.version v
  WHERE v.tenant_id = %(tenant)s AND v.document_id = d.id AND v.generation = %(generation)s
  ORDER BY v.version DESC LIMIT 1) AS m ON true

-- name: keep_raw_captures
-- The payloads as received; an identical one is kept once.
INSERT INTO memory.raw_capture (tenant_id, id, adapter, external_ref, raw_text, metadata, source_hash)
SELECT %(tenant)s, x.id, x.adapter, x.external_ref, x.raw_text, jsonb_build_object('occurredAt', x.occurred_at),
  x.source_hash
FROM json_to_recordset(%(rows)s::json) AS x(id text, adapter text, external_ref text, raw_text text, occurred_at text,
  source_hash text)
ORDER BY x.source_hash COLLATE "C"
ON CONFLICT (tenant_id, source_hash) WHERE source_hash IS NOT NULL DO NOTHING

-- name: supersede_versions
-- The active versions step back. One that a sweep has deprecated since it was looked at stays that: the feed has
-- taken it back.
UPDATE memory.version SET status = 'superseded', superseded_at = now()
WHERE tenant_id = %(tenant)s AND id = ANY (%(versions)s) AND status = 'active'

-- name: drop_search_rows
-- Superseded text is not searchable; vectors and queue entries go along. Deprecated versions stay found on request. In
-- key order, as all lock rows: in another one, two that lock the same would wait for each other.
WITH found AS (
  SELECT r.chunk_id FROM memory.search_row r
  WHERE r.tenant_id = %(tenant)s AND r.document_id = ANY (%(documents)s) AND r.generation = %(generation)s
    AND r.status = 'active'
  ORDER BY r.chunk_id FOR UPDATE
)
DELETE FROM memory.search_row r
WHERE r.tenant_id = %(tenant)s AND r.chunk_id = ANY (ARRAY(SELECT found.chunk_id FROM found))

-- name: update_documents
-- The document shows its newest version.
UPDATE memory.document d SET title = x.title, kind = x.kind, attributes = x.attributes, author = x.author,
  thread = x.thread, access_tags = x.access_tags, system_tags = x.system_tags
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x(document_id text, title text, kind text, attributes jsonb, author text,
  thread text, access_tags text[], system_tags text[])
WHERE d.tenant_id = %(tenant)s AND d.id = x.document_id

-- name: deprecated_documents
-- Those of which versions out of use are searched on request.
SELECT DISTINCT r.document_id FROM memory.search_row r
WHERE r.tenant_id = %(tenant)s AND r.document_id = ANY (%(documents)s) AND r.status = 'deprecated'

-- name: keep_plans
-- Each new place in the queue is checked against the searched rows, which are partitioned: with a plan that is made
-- anew for each, planning would take longer than all the rest of the row. On a cluster the setting goes to the nodes.
SET LOCAL plan_cache_mode = force_generic_plan

-- name: plan_anew
SET LOCAL plan_cache_mode = auto

-- name: insert_texts
-- The text of versions that this transaction writes: chunks, what search reads of them (analysed here by the functions
-- that also analyse queries), and their places in the queue for vectors, where whoever writes them has first go until
-- the lease ends. Turns of a thread have few heads between them: each is analysed once.
WITH x AS MATERIALIZED (
  SELECT * FROM json_to_recordset(%(chunks)s::json) AS x(id text, version_id text, document_id text, ordinal integer,
    text text, role text, token_count integer, thread_seq bigint, context_key text, tags text[], body text,
    words integer, asks boolean)
), v AS MATERIALIZED (
  SELECT * FROM json_to_recordset(%(versions)s::json) AS v(id text, status text, owner text, tags text[], kind text,
    attributes jsonb, thread text, author text, occurred_at timestamptz, valid_from timestamptz,
    valid_until timestamptz, temporal_class text, authority real, language text, head text)
), h AS MATERIALIZED (
  SELECT d.language, d.head, memory.analyse_head(d.language, d.head) AS fts
  FROM (SELECT DISTINCT v.language, v.head FROM v) AS d
), texts AS (
  INSERT INTO memory.chunk (tenant_id, id, version_id, document_id, ordinal, text, role, token_count)
  SELECT %(tenant)s, x.id, x.version_id, x.document_id, x.ordinal, x.text, x.role, x.token_count FROM x
), searched AS (
  INSERT INTO memory.search_row (tenant_id, chunk_id, generation, document_id, version_id, ordinal, status, owner_id,
    access_tags, kind, attributes, thread, thread_seq, context_key, author, occurred_at, valid_from, valid_until,
    temporal_class, authority, words, asks, language, fts, terms, lex)
  SELECT %(tenant)s, x.id, %(generation)s, x.document_id, x.version_id, x.ordinal, coalesce(v.status, 'active'), v.owner,
    coalesce(x.tags, v.tags), v.kind, nullif(v.attributes, '{}'), v.thread, x.thread_seq, x.context_key, v.author,
    v.occurred_at, v.valid_from, v.valid_until, v.temporal_class, v.authority, x.words, x.asks, v.language, a.fts,
    i.terms, i.lex
  FROM x
  JOIN v ON v.id = x.version_id
  JOIN h ON h.language = v.language AND h.head = v.head
  CROSS JOIN LATERAL (SELECT h.fts || memory.analyse_body(v.language, x.body) AS fts OFFSET 0) AS a
  CROSS JOIN LATERAL memory.index_terms(memory.term_seed(%(tenant)s, %(generation)s), a.fts) AS i
  RETURNING chunk_id, owner_id
)
INSERT INTO memory.embed_queue (tenant_id, chunk_id, generation, owner_id, not_before)
SELECT %(tenant)s, searched.chunk_id, %(generation)s, searched.owner_id, now() + make_interval(secs => %(lease)s)
FROM searched

-- name: insert_chunks
-- Text of versions that are not searched.
INSERT INTO memory.chunk (tenant_id, id, version_id, document_id, ordinal, text, role, token_count)
SELECT %(tenant)s, x.id, x.version_id, x.document_id, x.ordinal, x.text, x.role, x.token_count
FROM json_to_recordset(%(chunks)s::json) AS x(id text, version_id text, document_id text, ordinal integer, text text,
  role text, token_count integer)

-- name: late_threads
-- A turn is embedded with the one before it. Most turns come last: a look at each thread's rows from the earliest new one
-- on says whether there is any other to look for.
SELECT t.thread, t.earliest, t.latest
FROM unnest(%(threads)s::text[], %(earliest)s::timestamptz[], %(latest)s::timestamptz[])
  AS t(thread, earliest, latest)
CROSS JOIN LATERAL (
  SELECT n.chunk_id FROM memory.search_row n
  WHERE n.tenant_id = %(tenant)s AND n.generation = %(generation)s AND n.context_key = t.thread
    AND n.occurred_at >= t.earliest AND n.chunk_id <> ALL (%(chunks)b::text[])
  ORDER BY n.occurred_at, n.thread_seq, n.chunk_id LIMIT 1) AS other

-- name: enqueue_followers
-- Turns that now have another before them are embedded again. One that is dropped meanwhile is waited for and left out.
INSERT INTO memory.embed_queue (tenant_id, chunk_id, generation, owner_id)
WITH placed AS MATERIALIZED (
  SELECT r.*
  FROM unnest(%(threads)s::text[], %(earliest)s::timestamptz[], %(latest)s::timestamptz[])
    AS late(thread, earliest, latest)
  CROSS JOIN LATERAL (
    SELECT n.context_key, n.owner_id, n.access_tags, n.occurred_at, n.thread_seq, n.chunk_id
    FROM memory.search_row n
    WHERE n.tenant_id = %(tenant)s AND n.generation = %(generation)s AND n.context_key = late.thread
      AND n.occurred_at BETWEEN late.earliest AND late.latest AND n.thread IS NOT NULL
    ORDER BY n.occurred_at, n.thread_seq, n.chunk_id OFFSET 0) AS r
  WHERE r.chunk_id = ANY (%(chunks)b::text[])
), followers AS MATERIALIZED (
  SELECT f.chunk_id
  FROM placed r
  CROSS JOIN LATERAL (
    SELECT n.chunk_id FROM memory.search_row n
    WHERE n.tenant_id = %(tenant)s AND n.generation = %(generation)s AND n.context_key = r.context_key
      AND n.owner_id = r.owner_id AND n.access_tags = r.access_tags
      AND (n.occurred_at, n.thread_seq, n.chunk_id) > (r.occurred_at, r.thread_seq, r.chunk_id)
    ORDER BY n.occurred_at, n.thread_seq, n.chunk_id LIMIT 1) AS f
  WHERE f.chunk_id <> ALL (%(chunks)b::text[])
)
SELECT %(tenant)s, f.chunk_id, f.generation, f.owner_id FROM memory.search_row f
WHERE f.tenant_id = %(tenant)s AND f.chunk_id = ANY (ARRAY(SELECT followers.chunk_id FROM followers))
ORDER BY f.chunk_id FOR KEY SHARE OF f
ON CONFLICT (tenant_id, chunk_id) DO UPDATE SET enqueued_at = clock_timestamp()

-- name: upsert_entities
-- Entities by kind and identifier, in key order.
INSERT INTO memory.entity (tenant_id, id, kind, identifiers, label)
SELECT %(tenant)s, x.id, x.kind, jsonb_build_object('value', x.identifier), x.label
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x(id text, kind text, identifier text, label text)
ORDER BY x.kind COLLATE "C", x.identifier COLLATE "C"
ON CONFLICT (tenant_id, kind, (identifiers ->> 'value'))
DO UPDATE SET label = coalesce(excluded.label, entity.label), updated_at = now()
RETURNING kind, identifiers ->> 'value' AS identifier, id

-- name: insert_edges
-- Edges, each once.
INSERT INTO memory.edge (tenant_id, id, rel, from_type, from_ref, to_type, to_ref)
SELECT %(tenant)s, x.id, x.rel, x.from_type, x.from_ref, x.to_type, x.to_ref
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x(id text, rel text, from_type text, from_ref text, to_type text, to_ref text)
ORDER BY x.from_type COLLATE "C", x.from_ref COLLATE "C", x.rel COLLATE "C", x.to_type COLLATE "C", x.to_ref COLLATE "C"
ON CONFLICT DO NOTHING

-- name: retag_documents
-- Other tags on the same content: no new version, effective at once.
WITH retagged AS (
  UPDATE memory.document d SET access_tags = x.access_tags, system_tags = x.system_tags
  FROM jsonb_to_recordset(%(rows)s::jsonb) AS x(document_id text, access_tags text[], system_tags text[])
  WHERE d.tenant_id = %(tenant)s AND d.id = x.document_id
  RETURNING d.id, d.access_tags || d.system_tags AS tags
)
UPDATE memory.search_row r SET access_tags = memory.version_tags(r.status, v.access_tags, retagged.tags)
FROM retagged JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.document_id = retagged.id
WHERE r.tenant_id = %(tenant)s AND r.document_id = retagged.id AND r.version_id = v.id

-- name: audit
-- Adds and what came of them.
INSERT INTO memory.audit_event (tenant_id, id, actor_id, action, target_type, target_id, outcome)
SELECT %(tenant)s, a.id, %(principal)s, 'add', 'document', a.document_id, a.outcome
FROM json_to_recordset(%(rows)s::json) AS a(id text, document_id text, outcome text)

-- name: insert_versions
-- The last step: new active versions, with numbers for the feed in commit order, while this transaction alone holds the
-- counter. Each has the capture of its payload: this one's, or the one that was kept before.
WITH counter AS (
  UPDATE memory.tenant_state SET feed_seq = feed_seq + %(count)s,
    document_count = document_count + %(documents)s, chunk_count = greatest(0, chunk_count + %(chunks)s),
    languages = CASE WHEN languages @> %(languages)s::text[] THEN languages
                     ELSE ARRAY(SELECT DISTINCT unnest(languages || %(languages)s::text[]) ORDER BY 1) END
  WHERE tenant_id = %(tenant)s RETURNING feed_seq - %(count)s AS base
), made AS (
  INSERT INTO memory.version (tenant_id, id, document_id, version, supersedes_version_id, content_hash, title, kind,
    attributes, access_tags, thread, author, language, occurred_at, owner_principal_id, created_by_principal_id,
    created_by_kind, generator_agent_id, authority, actor_count, has_social_signal, source_class, raw_capture_id,
    generation, provenance, temporal_class, valid_from, valid_until, retention_class, feed_seq)
  SELECT %(tenant)s, x.id, x.document_id, x.version, x.supersedes, x.content_hash, x.title, x.kind, x.attributes,
    x.tags, x.thread, x.author, x.language, x.occurred_at, x.owner, %(principal)s, x.created_by_kind,
    x.generator_agent_id, x.authority, x.actor_count, x.has_social_signal, x.source_class, c.id,
    %(generation)s, x.provenance, x.temporal_class, x.valid_from, x.valid_until, x.retention_class,
    counter.base + x.ordinality
  FROM counter
  CROSS JOIN ROWS FROM (json_to_recordset(%(versions)s::json) AS (id text, document_id text, version integer,
    supersedes text, owner text, content_hash text, title text, kind text, attributes jsonb, tags text[], thread text,
    author text, language text, occurred_at timestamptz, created_by_kind text, generator_agent_id text, authority real,
    actor_count integer, has_social_signal boolean, source_class text, source_hash text, provenance text,
    temporal_class text, valid_from timestamptz, valid_until timestamptz, retention_class text)) WITH ORDINALITY AS x
  -- LIMIT: a look-up each; a join may read all of the tenant's.
  CROSS JOIN LATERAL (
    SELECT r.id FROM memory.raw_capture r WHERE r.tenant_id = %(tenant)s AND r.source_hash = x.source_hash LIMIT 1) AS c
  RETURNING feed_seq, id
)
INSERT INTO memory.feed_event (tenant_id, seq, op, version_id) SELECT %(tenant)s, feed_seq, 'upsert', id FROM made

-- name: finish
-- The last step where the versions stand already: their numbers.
WITH counter AS (
  UPDATE memory.tenant_state SET feed_seq = feed_seq + cardinality(%(versions)b::text[]),
    document_count = document_count + %(documents)s, chunk_count = greatest(0, chunk_count + %(chunks)s),
    languages = CASE WHEN languages @> %(languages)s::text[] THEN languages
                     ELSE ARRAY(SELECT DISTINCT unnest(languages || %(languages)s::text[]) ORDER BY 1) END
  WHERE tenant_id = %(tenant)s RETURNING feed_seq - cardinality(%(versions)b::text[]) AS base
), numbered AS (
  SELECT v.id, counter.base + v.place AS seq FROM counter, unnest(%(versions)b::text[]) WITH ORDINALITY AS v(id, place)
), stamped AS (
  UPDATE memory.version v SET feed_seq = n.seq FROM numbered n WHERE v.tenant_id = %(tenant)s AND v.id = n.id
)
INSERT INTO memory.feed_event (tenant_id, seq, op, version_id) SELECT %(tenant)s, seq, 'upsert', id FROM numbered
