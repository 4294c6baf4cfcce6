-- The feed: what happened, in commit order.

-- name: page
-- What was asked for of a stretch of numbers, and the newest number: of one snapshot, in which there is no gap.
-- The stretch is bounded by its numbers, not by a LIMIT: no plan can make it more.
WITH wanted AS (
  SELECT e.seq, e.op, e.at, e.version_id, coalesce(e.document_id, v.document_id) AS document_id,
    coalesce(e.owner_id, d.owner_principal_id) AS owner, coalesce(e.tags, d.tags, '{}') AS tags, e.peers,
    v.access_tags AS version_tags, v.kind, v.title, v.status, v.created_by_kind, v.generator_agent_id, v.provenance,
    v.source_class, v.occurred_at, v.ingested_at
  FROM memory.feed_event e
  LEFT JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.id = e.version_id
  LEFT JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id
  WHERE e.tenant_id = %(tenant)s AND e.seq > %(after)s AND e.seq <= %(until)s AND e.op = ANY (%(ops)s)
    AND (e.op <> 'upsert' OR (v.status IN ('active', 'superseded')
         AND (%(excluded)s::text IS NULL OR v.generator_agent_id IS DISTINCT FROM %(excluded)s)))
  ORDER BY e.seq LIMIT %(limit)s + 1
)
SELECT t.feed_seq AS newest, w.*
FROM memory.tenant_state t LEFT JOIN wanted w ON true
WHERE t.tenant_id = %(tenant)s
ORDER BY w.seq

-- name: texts
-- The text of versions, in the order given, until so many bytes are reached; of the one that goes beyond, what fits.
SELECT p.version_id, coalesce(string_agg(p.text, '' ORDER BY p.ordinal) FILTER (WHERE p.upto <= %(bytes)s), '') AS text,
  bool_and(coalesce(p.upto, 0) <= %(bytes)s) AS complete
FROM (
  SELECT v.id AS version_id, c.ordinal, c.text,
    sum(octet_length(c.text)) OVER (ORDER BY n.place, c.ordinal) AS upto
  FROM unnest(%(versions)s::text[]) WITH ORDINALITY AS n(id, place)
  JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.id = n.id AND v.status IN ('active', 'superseded')
  LEFT JOIN memory.chunk c ON c.tenant_id = %(tenant)s AND c.version_id = v.id
) AS p
GROUP BY p.version_id

-- name: append_retractions
-- Numbers for versions that stop being readable; before their rows go, and as the last step of a transaction.
WITH gone AS (
  SELECT v.id, v.document_id, d.owner_principal_id, d.tags, row_number() OVER (ORDER BY v.id) AS place
  FROM memory.version v JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id
  WHERE v.tenant_id = %(tenant)s AND v.id = ANY (%(versions)s) AND v.feed_seq IS NOT NULL
), counter AS (
  UPDATE memory.tenant_state SET feed_seq = feed_seq + (SELECT count(*) FROM gone)
  WHERE tenant_id = %(tenant)s RETURNING feed_seq - (SELECT count(*) FROM gone) AS base
)
INSERT INTO memory.feed_event (tenant_id, seq, op, version_id, document_id, owner_id, tags)
SELECT %(tenant)s, counter.base + gone.place, 'retract', gone.id, gone.document_id, gone.owner_principal_id, gone.tags
FROM counter, gone

-- name: name_readers
-- Who could see by name what has been retracted, once.
UPDATE memory.feed_event e SET peers = %(principals)s
WHERE e.tenant_id = %(tenant)s AND e.document_id = %(document)s AND e.op = 'retract' AND e.peers IS NULL

-- name: append_promotion
-- One number: another generation is live now. The last step of a transaction.
WITH counter AS (
  UPDATE memory.tenant_state SET feed_seq = feed_seq + 1 WHERE tenant_id = %(tenant)s RETURNING feed_seq
)
INSERT INTO memory.feed_event (tenant_id, seq, op) SELECT %(tenant)s, counter.feed_seq, 'promote' FROM counter

-- name: newest
-- The highest number of each of some tenants.
SELECT t.tenant_id, t.feed_seq FROM memory.tenant_state t WHERE t.tenant_id = ANY (%(tenants)s)

-- name: notify
-- Followers in other processes; in a transaction of its own, since notices make commits wait for each other.
SELECT pg_notify(%(channel)s, t.tenant_id) FROM unnest(%(tenants)s::text[]) AS t(tenant_id)
