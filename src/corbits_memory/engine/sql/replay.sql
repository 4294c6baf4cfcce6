-- Replays. A generation is written beside the live one, by the ids of raw captures, and a pointer moves.

-- name: live_generation
-- Where `live` points now.
SELECT live_generation FROM memory.tenant_state WHERE tenant_id = %(tenant)s

-- name: live_corpus
-- Where `live` points now and whose vectors it has, in one statement: a promotion moves both.
SELECT s.live_generation, m.model_key, m.dims FROM memory.tenant_state s
LEFT JOIN memory.embed_model m ON m.tenant_id = s.tenant_id AND m.status = 'active'
WHERE s.tenant_id = %(tenant)s

-- name: settings
-- What the run was made by whose generation this is.
SELECT r.config_id, r.model_key, r.pinned, c.params
FROM memory.transform_run r
JOIN memory.transform_config c ON c.tenant_id = %(tenant)s AND c.id = r.config_id
WHERE r.tenant_id = %(tenant)s AND r.generation = %(generation)s

-- name: secrets
-- The keys of a config. Read as the owner: the policy lets nobody else.
SELECT field, secret FROM memory.transform_secret WHERE tenant_id = %(tenant)s AND config_id = %(config)s

-- name: model_sources
-- How a registered model can be reached: by the configs whose runs it served, newest first, then by its own row.
-- Read as the owner.
SELECT * FROM (
  SELECT c.id AS config_id, c.params, s.secret, m.base_url, m.model_id, m.api_style
  FROM memory.embed_model m
  JOIN memory.transform_run r ON r.tenant_id = m.tenant_id AND r.model_key = m.model_key AND r.pinned
  JOIN memory.transform_config c ON c.tenant_id = m.tenant_id AND c.id = r.config_id
  LEFT JOIN memory.transform_secret s ON s.tenant_id = m.tenant_id AND s.config_id = c.id AND s.field = 'embed.apiKey'
  WHERE m.tenant_id = %(tenant)s AND m.model_key = %(model_key)s
  ORDER BY r.id DESC LIMIT 3
) AS of_configs
UNION ALL
SELECT NULL, NULL, NULL, m.base_url, m.model_id, m.api_style FROM memory.embed_model m
WHERE m.tenant_id = %(tenant)s AND m.model_key = %(model_key)s

-- name: generation_model
-- Whose vectors a generation has.
SELECT model_key FROM memory.generation WHERE tenant_id = %(tenant)s AND id = %(generation)s

-- name: captures_in_scope
-- A run's raw captures between two ids, and how large they are.
SELECT r.id, coalesce(octet_length(r.raw_text), 0) AS bytes FROM memory.raw_capture r
WHERE r.tenant_id = %(tenant)s AND r.id > %(after)s AND (%(last)s::text IS NULL OR r.id <= %(last)s)
  AND (%(adapter)s::text IS NULL OR r.adapter = %(adapter)s)
  AND (%(since)s::timestamptz IS NULL OR r.fetched_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR r.fetched_at <= %(until)s)
  AND ((%(kinds)s::text[] = '{}' AND %(documents)s::text[] = '{}') OR EXISTS (
    SELECT FROM memory.document d
    WHERE d.tenant_id = %(tenant)s AND d.adapter = r.adapter AND d.external_ref = r.external_ref
      AND d.external_ref IS NOT NULL
      AND (%(kinds)s::text[] = '{}' OR d.kind = ANY (%(kinds)s))
      AND (%(documents)s::text[] = '{}' OR d.id = ANY (%(documents)s))))
  AND NOT EXISTS (SELECT FROM memory.erasure e WHERE e.tenant_id = %(tenant)s AND e.raw_capture_id = r.id)
ORDER BY r.id LIMIT %(limit)s

-- name: payloads
-- What was stored, of raw captures whose copies are to be made.
SELECT r.id, r.raw_text FROM memory.raw_capture r
WHERE r.tenant_id = %(tenant)s AND r.id = ANY (%(captures)s) ORDER BY r.id

-- name: payloads_to_plan
-- As payloads, without those all of whose versions have their copies already.
SELECT r.id, r.raw_text FROM memory.raw_capture r
WHERE r.tenant_id = %(tenant)s AND r.id = ANY (%(captures)s)
  AND (SELECT count(*) FROM memory.version k WHERE k.tenant_id = %(tenant)s AND k.raw_capture_id = r.id
         AND k.generation = %(generation)s)
    < greatest(1, (SELECT count(*) FROM memory.version v JOIN memory.tenant_state s ON s.tenant_id = %(tenant)s
         WHERE v.tenant_id = %(tenant)s AND v.raw_capture_id = r.id AND v.generation = s.live_generation
           AND v.status <> 'tombstoned'))
ORDER BY r.id

-- name: sources_of_captures
-- Which versions are to be copied: those of the live generation, and of a capture that has none there, those of another.
WITH made AS MATERIALIZED (
  SELECT v.id, coalesce(v.origin_id, v.id) AS origin, v.raw_capture_id, v.generation = %(live)s AS live
  FROM memory.version v
  WHERE v.tenant_id = %(tenant)s AND v.raw_capture_id = ANY (%(captures)s) AND v.raw_capture_id IS NOT NULL
    AND v.generation <> %(generation)s AND v.status <> 'tombstoned'
), chosen AS MATERIALIZED (
  SELECT DISTINCT ON (m.origin) m.id, m.origin, m.live FROM made m
  WHERE m.live OR NOT EXISTS (SELECT FROM made o WHERE o.raw_capture_id = m.raw_capture_id AND o.live)
  ORDER BY m.origin, m.live DESC, m.id DESC
)
SELECT v.id, c.origin, c.live, v.document_id, v.version, v.supersedes_version_id, v.status, v.content_hash, v.access_tags,
  v.language,
  v.raw_capture_id, d.owner_principal_id,
  memory.version_tags(v.status, v.access_tags, d.tags) AS tags, d.thread_seq, coalesce(k.id, o.id) AS copy_id,
  EXISTS (SELECT FROM memory.chunk t JOIN memory.search_row r ON r.tenant_id = %(tenant)s AND r.chunk_id = t.id
          WHERE t.tenant_id = %(tenant)s AND t.version_id = v.id AND t.version_id IS NOT NULL) AS searched
FROM chosen c
JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.id = c.id
JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id
-- A look-up each; a join may read all of the generation.
LEFT JOIN LATERAL (
  SELECT n.id FROM memory.version n WHERE n.tenant_id = %(tenant)s AND n.origin_id = c.origin
    AND n.generation = %(generation)s AND n.origin_id IS NOT NULL LIMIT 1) AS k ON true
LEFT JOIN LATERAL (
  SELECT n.id FROM memory.version n WHERE n.tenant_id = %(tenant)s AND n.id = c.origin
    AND n.generation = %(generation)s LIMIT 1) AS o ON true
ORDER BY v.id

-- name: sources_of_documents
-- Live versions of some documents that have no copy, with what a scope asks for.
SELECT v.id, coalesce(v.origin_id, v.id) AS origin, true AS live, v.document_id, v.version, v.supersedes_version_id, v.status,
  v.content_hash,
  v.access_tags, v.language, v.raw_capture_id, d.owner_principal_id,
  memory.version_tags(v.status, v.access_tags, d.tags) AS tags, d.thread_seq, NULL AS copy_id,
  EXISTS (SELECT FROM memory.chunk t JOIN memory.search_row r ON r.tenant_id = %(tenant)s AND r.chunk_id = t.id
          WHERE t.tenant_id = %(tenant)s AND t.version_id = v.id AND t.version_id IS NOT NULL) AS searched,
  d.adapter, d.kind AS document_kind, w.fetched_at
FROM memory.version v
JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id
JOIN memory.raw_capture w ON w.tenant_id = %(tenant)s AND w.id = v.raw_capture_id
WHERE v.tenant_id = %(tenant)s AND v.document_id = ANY (%(documents)s) AND v.document_id IS NOT NULL
  AND v.generation = %(live)s AND v.status <> 'tombstoned'
  -- A look-up each; an anti-join may read all of the generation. CASE, since under a policy COALESCE keeps an index
  -- from being used: it counts as leaky.
  AND (SELECT k.id FROM memory.version k WHERE k.tenant_id = %(tenant)s AND k.generation = %(generation)s
         AND k.origin_id = CASE WHEN v.origin_id IS NULL THEN v.id ELSE v.origin_id END
         AND k.origin_id IS NOT NULL LIMIT 1) IS NULL
  AND (SELECT o.id FROM memory.version o WHERE o.tenant_id = %(tenant)s AND o.generation = %(generation)s
         AND o.id = CASE WHEN v.origin_id IS NULL THEN v.id ELSE v.origin_id END LIMIT 1) IS NULL
ORDER BY v.id

-- name: captures_without_version
-- Of raw captures that may be read, those from which nothing was ever made.
SELECT r.id FROM memory.raw_capture r
WHERE r.tenant_id = %(tenant)s AND r.id = ANY (%(captures)s) AND NOT EXISTS (
  SELECT FROM memory.version v WHERE v.tenant_id = %(tenant)s AND v.raw_capture_id = r.id)
ORDER BY r.id

-- name: lock_documents
-- In the order in which captures lock them. Tags, captures and erasures wait, or were first.
SELECT FROM memory.document d WHERE d.tenant_id = %(tenant)s AND d.id = ANY (%(documents)s)
ORDER BY d.adapter, d.external_ref FOR NO KEY UPDATE

-- name: lock_sources
-- Whoever deprecates them or changes their class waits, or was first.
SELECT FROM memory.version v WHERE v.tenant_id = %(tenant)s AND v.id = ANY (%(versions)s) ORDER BY v.id FOR SHARE

-- name: align_copies
-- Copies follow what became of their originals since: superseded, deprecated, held. An active copy of what is not
-- live makes room for what is.
WITH behind AS (
  SELECT k.id, coalesce(s.status, 'superseded') AS status, coalesce(s.superseded_at, now()) AS superseded_at,
    s.deprecated_at, s.deprecated_reason, coalesce(s.retention_class, k.retention_class) AS retention_class
  FROM memory.version k
  LEFT JOIN LATERAL (
    SELECT * FROM memory.version v
    WHERE v.tenant_id = %(tenant)s AND v.document_id = k.document_id AND v.document_id IS NOT NULL
      AND v.generation = %(live)s AND coalesce(v.origin_id, v.id) = coalesce(k.origin_id, k.id)
    LIMIT 1) AS s ON true
  WHERE k.tenant_id = %(tenant)s AND k.document_id = ANY (%(documents)s) AND k.document_id IS NOT NULL
    AND k.generation = %(generation)s AND (k.status = 'active' OR (%(every_status)s AND k.status = 'superseded'))
    AND CASE WHEN s.id IS NULL THEN k.status = 'active' AND EXISTS (
               SELECT FROM memory.version a WHERE a.tenant_id = %(tenant)s AND a.document_id = k.document_id
                 AND a.generation = %(live)s AND a.status = 'active')
             ELSE s.retention_class <> k.retention_class
               OR (s.status IN ('superseded', 'deprecated') AND s.status <> k.status) END
)
UPDATE memory.version k SET retention_class = b.retention_class,
  status = CASE WHEN b.status IN ('superseded', 'deprecated') THEN b.status ELSE k.status END,
  superseded_at = CASE WHEN b.status IN ('superseded', 'deprecated') THEN b.superseded_at ELSE k.superseded_at END,
  deprecated_at = b.deprecated_at, deprecated_reason = b.deprecated_reason
FROM behind b WHERE k.tenant_id = %(tenant)s AND k.id = b.id
RETURNING k.id, k.status

-- name: drop_rows_of
-- What is superseded is not searched; vectors and queue entries go along. In key order, as workers lock them.
WITH found AS (
  SELECT r.chunk_id FROM memory.search_row r
  WHERE r.tenant_id = %(tenant)s AND r.chunk_id = ANY (ARRAY(
    SELECT t.id FROM memory.chunk t
    WHERE t.tenant_id = %(tenant)s AND t.version_id = ANY (%(versions)s) AND t.version_id IS NOT NULL))
  ORDER BY r.chunk_id FOR UPDATE
)
DELETE FROM memory.search_row r
WHERE r.tenant_id = %(tenant)s AND r.chunk_id = ANY (ARRAY(SELECT found.chunk_id FROM found))

-- name: places
-- Which numbers the generation has of some documents, and whether one of each is active, here and live.
SELECT d.id AS document_id,
  coalesce((SELECT v.version FROM memory.version v WHERE v.tenant_id = %(tenant)s AND v.document_id = d.id
              AND v.generation = %(generation)s AND v.document_id IS NOT NULL ORDER BY v.version DESC LIMIT 1), 0) AS last,
  ARRAY(SELECT w.number FROM unnest(%(wanted_documents)s::text[], %(wanted_numbers)s::integer[]) AS w(document_id, number)
        JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.document_id = w.document_id
          AND v.generation = %(generation)s AND v.version = w.number AND v.document_id IS NOT NULL
        WHERE w.document_id = d.id) AS taken,
  EXISTS (SELECT FROM memory.version v WHERE v.tenant_id = %(tenant)s AND v.document_id = d.id
            AND v.generation = %(generation)s AND v.status = 'active') AS active,
  EXISTS (SELECT FROM memory.version v WHERE v.tenant_id = %(tenant)s AND v.document_id = d.id
            AND v.generation = %(live)s AND v.status = 'active') AS live_active
FROM unnest(%(documents)s::text[]) AS d(id)

-- name: insert_copies
-- Versions of the generation: derived from the payload, and placed as their originals are. The feed hears nothing.
INSERT INTO memory.version (tenant_id, id, document_id, version, supersedes_version_id, status, content_hash, title, kind,
  attributes, access_tags, thread, author, language, occurred_at, ingested_at, superseded_at, deprecated_at,
  deprecated_reason, owner_principal_id, created_by_principal_id, created_by_kind, generator_agent_id, authority,
  actor_count, has_social_signal, source_class, raw_capture_id, generation, provenance, temporal_class, valid_from,
  valid_until, retention_class, origin_id)
SELECT %(tenant)s, x.id, x.document_id, x.version,
  coalesce(x.supersedes, (SELECT k.id FROM memory.version p JOIN memory.version k ON k.tenant_id = %(tenant)s AND k.document_id = p.document_id
     AND k.generation = %(generation)s AND k.document_id IS NOT NULL
     AND coalesce(k.origin_id, k.id) = coalesce(p.origin_id, p.id)
   WHERE p.tenant_id = %(tenant)s AND p.id = s.supersedes_version_id LIMIT 1)),
  x.status, x.content_hash, x.title, x.kind, x.attributes, s.access_tags, x.thread, x.author, s.language,
  x.occurred_at, s.ingested_at, CASE WHEN x.status = 'superseded' THEN coalesce(s.superseded_at, now()) END,
  s.deprecated_at, s.deprecated_reason, s.owner_principal_id, s.created_by_principal_id, x.created_by_kind,
  x.generator_agent_id, x.authority, x.actor_count, x.has_social_signal, x.source_class, s.raw_capture_id,
  %(generation)s, x.provenance, x.temporal_class, x.valid_from, x.valid_until, s.retention_class, x.origin
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x(id text, source text, origin text, document_id text, version integer,
  supersedes text, status text, content_hash text, title text, kind text, attributes jsonb, thread text, author text,
  occurred_at timestamptz, created_by_kind text, generator_agent_id text, authority real, actor_count integer,
  has_social_signal boolean, source_class text, provenance text, temporal_class text, valid_from timestamptz,
  valid_until timestamptz)
JOIN memory.version s ON s.tenant_id = %(tenant)s AND s.id = x.source
ORDER BY x.version

-- name: edges_to_link
-- What live versions say of others, and the copies of both ends; a page of all.
SELECT e.from_ref || ' ' || e.id AS place, e.rel, f.id AS from_copy, t.id AS to_copy
FROM (
  SELECT g.id, g.rel, g.from_ref, g.to_ref FROM memory.edge g
  WHERE g.tenant_id = %(tenant)s AND g.from_type = 'version' AND g.to_type = 'version'
    AND (g.from_ref, g.id) > (split_part(%(after)s, ' ', 1), split_part(%(after)s, ' ', 2))
  ORDER BY g.from_ref, g.id LIMIT %(limit)s
) AS e
LEFT JOIN memory.version s ON s.tenant_id = %(tenant)s AND s.id = e.from_ref AND s.generation = %(live)s
LEFT JOIN memory.version o ON o.tenant_id = %(tenant)s AND o.id = e.to_ref
LEFT JOIN LATERAL (
  SELECT k.id FROM memory.version k WHERE k.tenant_id = %(tenant)s AND k.document_id = s.document_id
    AND k.generation = %(generation)s AND k.document_id IS NOT NULL
    AND coalesce(k.origin_id, k.id) = coalesce(s.origin_id, s.id) LIMIT 1) AS f ON true
LEFT JOIN LATERAL (
  SELECT k.id FROM memory.version k WHERE k.tenant_id = %(tenant)s AND k.document_id = o.document_id
    AND k.generation = %(generation)s AND k.document_id IS NOT NULL
    AND coalesce(k.origin_id, k.id) = coalesce(o.origin_id, o.id) LIMIT 1) AS t ON true
ORDER BY e.from_ref, e.id

-- name: edges_of_documents
-- As edges_to_link, of some documents at either end.
WITH own AS MATERIALIZED (
  SELECT v.id FROM memory.version v
  WHERE v.tenant_id = %(tenant)s AND v.document_id = ANY (%(documents)s) AND v.document_id IS NOT NULL
), named AS MATERIALIZED (
  SELECT g.id, g.rel, g.from_ref, g.to_ref FROM own JOIN memory.edge g ON g.tenant_id = %(tenant)s
    AND g.from_type = 'version' AND g.from_ref = own.id AND g.to_type = 'version'
  UNION
  SELECT g.id, g.rel, g.from_ref, g.to_ref FROM own JOIN memory.edge g ON g.tenant_id = %(tenant)s
    AND g.to_type = 'version' AND g.to_ref = own.id AND g.from_type = 'version'
)
SELECT e.from_ref || ' ' || e.id AS place, e.rel, f.id AS from_copy, t.id AS to_copy
FROM (
  SELECT n.* FROM named n
  WHERE (n.from_ref, n.id) > (split_part(%(after)s, ' ', 1), split_part(%(after)s, ' ', 2))
  ORDER BY n.from_ref, n.id LIMIT %(limit)s
) AS e
LEFT JOIN memory.version s ON s.tenant_id = %(tenant)s AND s.id = e.from_ref AND s.generation = %(live)s
LEFT JOIN memory.version o ON o.tenant_id = %(tenant)s AND o.id = e.to_ref
LEFT JOIN LATERAL (
  SELECT k.id FROM memory.version k WHERE k.tenant_id = %(tenant)s AND k.document_id = s.document_id
    AND k.generation = %(generation)s AND k.document_id IS NOT NULL
    AND coalesce(k.origin_id, k.id) = coalesce(s.origin_id, s.id) LIMIT 1) AS f ON true
LEFT JOIN LATERAL (
  SELECT k.id FROM memory.version k WHERE k.tenant_id = %(tenant)s AND k.document_id = o.document_id
    AND k.generation = %(generation)s AND k.document_id IS NOT NULL
    AND coalesce(k.origin_id, k.id) = coalesce(o.origin_id, o.id) LIMIT 1) AS t ON true
ORDER BY e.from_ref, e.id

-- name: lock_generation
-- One catches a generation up at a time.
SELECT g.caught_seq, g.model_key FROM memory.generation g
WHERE g.tenant_id = %(tenant)s AND g.id = %(generation)s FOR UPDATE

-- name: changed_documents
-- What the feed told of since: documents, up to a number that ends a page.
SELECT e.seq, coalesce(e.document_id, v.document_id) AS document_id
FROM memory.feed_event e LEFT JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.id = e.version_id
WHERE e.tenant_id = %(tenant)s AND e.seq > %(after)s
ORDER BY e.seq LIMIT %(limit)s

-- name: caught_up
-- It holds what the feed told of up to here.
UPDATE memory.generation g SET caught_seq = %(seq)s WHERE g.tenant_id = %(tenant)s AND g.id = %(generation)s

-- name: behind
-- How many events a generation has not caught up with, counted up to a limit, and how much text that may be.
SELECT count(*) AS events, coalesce(sum(b.bytes), 0)::bigint AS bytes FROM (
  SELECT octet_length(w.raw_text) AS bytes FROM memory.generation g
  JOIN memory.feed_event e ON e.tenant_id = %(tenant)s AND e.seq > g.caught_seq
  LEFT JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.id = e.version_id
  LEFT JOIN memory.raw_capture w ON w.tenant_id = %(tenant)s AND w.id = v.raw_capture_id
  WHERE g.tenant_id = %(tenant)s AND g.id = %(generation)s LIMIT %(limit)s) AS b

-- name: lock_tenant_alone
-- Nobody reads where `live` points to write there, until this ends.
SELECT live_generation, feed_seq FROM memory.tenant_state WHERE tenant_id = %(tenant)s FOR UPDATE

-- name: left_out
-- Live documents of which the generation has nothing, those apart that it has not caught up with.
SELECT count(*) FROM memory.version v JOIN memory.generation g ON g.tenant_id = %(tenant)s AND g.id = %(generation)s
WHERE v.tenant_id = %(tenant)s AND v.generation = %(live)s AND v.status = 'active'
  AND coalesce(v.feed_seq, 0) <= g.caught_seq AND NOT EXISTS (
  SELECT FROM memory.version k WHERE k.tenant_id = %(tenant)s AND k.generation = %(generation)s
    AND k.document_id = v.document_id AND k.document_id IS NOT NULL)

-- name: searchable_rows
-- How many rows a generation has for search.
SELECT count(*) FROM memory.search_row r WHERE r.tenant_id = %(tenant)s AND r.generation = %(generation)s

-- name: point_live
-- Another generation is live. Terms are counted anew; until then those counted ahead serve, in as many rows.
UPDATE memory.tenant_state s SET live_generation = %(generation)s, chunk_count = %(searchable)s, stats_at = NULL,
  stats_rows = CASE WHEN s.stats_rows IS NOT NULL THEN %(searchable)s END
WHERE s.tenant_id = %(tenant)s

-- name: archive_generation
-- What was live is kept, in line with the feed up to now.
INSERT INTO memory.generation (tenant_id, id, model_key, caught_seq)
SELECT %(tenant)s, %(generation)s, %(model_key)s, s.feed_seq FROM memory.tenant_state s WHERE s.tenant_id = %(tenant)s
ON CONFLICT (tenant_id, id) DO UPDATE SET model_key = excluded.model_key, caught_seq = excluded.caught_seq

-- name: run_promoted
-- What stood in its place before.
UPDATE memory.transform_run r SET promoted_at = now(), archived_live_generation = %(archived)s,
  archived_live_model_key = %(model_key)s
WHERE r.tenant_id = %(tenant)s AND r.id = %(run)s

-- name: run_demoted
-- As if it had never been promoted.
UPDATE memory.transform_run r SET promoted_at = NULL, archived_live_generation = NULL, archived_live_model_key = NULL
WHERE r.tenant_id = %(tenant)s AND r.id = %(run)s

-- name: payloads_behind
-- What the next page of events will need, as far as that can be told before anything is held.
SELECT w.id, w.raw_text
FROM (
  SELECT DISTINCT v.raw_capture_id FROM memory.generation g
  CROSS JOIN LATERAL (
    SELECT e.version_id FROM memory.feed_event e
    WHERE e.tenant_id = %(tenant)s AND e.seq > g.caught_seq ORDER BY e.seq LIMIT %(limit)s) AS next
  JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.id = next.version_id
  WHERE g.tenant_id = %(tenant)s AND g.id = %(generation)s) AS needed
JOIN memory.raw_capture w ON w.tenant_id = %(tenant)s AND w.id = needed.raw_capture_id AND w.raw_text IS NOT NULL
ORDER BY w.id
