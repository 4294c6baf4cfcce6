-- What hits are shown with, as before (0012); each table is looked up by its key, whatever the planner knows by then.
-- Before the first ANALYZE a tenant seems to have a row or none: joined, all its versions met all its documents.
CREATE OR REPLACE FUNCTION memory.hit_details(
  p_chunks text[], p_principal text, p_everything boolean, p_allowed text[], p_refused text[], p_vetoed text[])
RETURNS TABLE (
  chunk_id text, text text, version_id text, version integer, status text, title text, kind text, document_id text,
  adapter text, external_ref text, last_seen_at timestamptz, owner_principal_id text, tags text[], written text[],
  author text, thread text,
  created_by_kind text, generator_agent_id text, provenance text, source_class text, temporal_class text,
  occurred_at timestamptz, valid_until timestamptz, authority real, entity_ids text[], derived_from text[],
  supports bigint, contradicts bigint)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, memory, {{EXTENSION_SCHEMAS}}, pg_temp SET jit = off
  SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
BEGIN
  -- OFFSET 0: a look-up each, by these columns alone; with more conditions another index may look as good as its key.
  RETURN QUERY
  SELECT c.id::text, c.text, v.id::text, v.version, v.status, v.title, v.kind::text, v.document_id::text,
    d.adapter::text, d.external_ref::text, d.last_seen_at, d.owner_principal_id::text, d.tags::text[],
    v.access_tags::text[], v.author, v.thread::text,
    v.created_by_kind, v.generator_agent_id::text, v.provenance, v.source_class, v.temporal_class,
    v.occurred_at, v.valid_until, v.authority,
    ARRAY(SELECT DISTINCT e.to_ref::text
          FROM (SELECT e.to_type, e.to_ref FROM memory.edge e
                WHERE e.tenant_id = tenant AND e.from_type = 'document' AND e.from_ref = v.document_id OFFSET 0) AS e
          WHERE e.to_type = 'entity' ORDER BY 1),
    ARRAY(SELECT e.to_ref::text
          FROM (SELECT e.rel, e.to_ref FROM memory.edge e
                WHERE e.tenant_id = tenant AND e.from_type = 'version' AND e.from_ref = v.id OFFSET 0) AS e
          CROSS JOIN LATERAL (
            SELECT s.status, s.access_tags, s.document_id FROM memory.version s
            WHERE s.tenant_id = tenant AND s.id = e.to_ref OFFSET 0) AS s
          CROSS JOIN LATERAL (
            SELECT o.owner_principal_id, o.tags, o.id FROM memory.document o
            WHERE o.tenant_id = tenant AND o.id = s.document_id OFFSET 0) AS o
          WHERE e.rel = 'derived_from' AND memory.admits_version(s.status, s.access_tags, o.owner_principal_id, o.tags,
            o.id, p_principal, p_everything, p_allowed, p_refused, p_vetoed)
          ORDER BY 1),
    claims.supports, claims.contradicts
  FROM (SELECT DISTINCT unnest(p_chunks) AS id) AS p
  CROSS JOIN LATERAL (
    SELECT c.id, c.text, c.version_id, c.document_id FROM memory.chunk c
    WHERE c.tenant_id = tenant AND c.id = p.id OFFSET 0) AS c
  CROSS JOIN LATERAL (
    SELECT v.* FROM memory.version v WHERE v.tenant_id = tenant AND v.id = c.version_id OFFSET 0) AS v
  CROSS JOIN LATERAL (
    SELECT d.* FROM memory.document d WHERE d.tenant_id = tenant AND d.id = c.document_id OFFSET 0) AS d
  CROSS JOIN LATERAL (
    SELECT count(DISTINCT s.created_by_principal_id) FILTER (WHERE e.rel = 'supports') AS supports,
      count(DISTINCT s.created_by_principal_id) FILTER (WHERE e.rel = 'contradicts') AS contradicts
    FROM (
      SELECT e.rel, e.from_type, e.from_ref FROM memory.edge e
      WHERE e.tenant_id = tenant AND e.to_type = 'version' AND e.to_ref = v.id OFFSET 0) AS e
    CROSS JOIN LATERAL (
      SELECT s.status, s.created_by_principal_id, s.document_id FROM memory.version s
      WHERE s.tenant_id = tenant AND s.id = e.from_ref OFFSET 0) AS s
    CROSS JOIN LATERAL (
      SELECT o.owner_principal_id, o.tags, o.id FROM memory.document o
      WHERE o.tenant_id = tenant AND o.id = s.document_id OFFSET 0) AS o
    WHERE e.rel IN ('supports', 'contradicts') AND e.from_type = 'version' AND s.status = 'active'
      AND memory.admits(o.owner_principal_id, o.tags, o.id, p_principal, p_everything, p_allowed, p_refused, p_vetoed)
  ) AS claims
  WHERE memory.admits_version(v.status, v.access_tags, d.owner_principal_id, d.tags, d.id, p_principal, p_everything,
                              p_allowed, p_refused, p_vetoed);
END $$;
