-- Access by tags: what a document carries in all, which tags a tenant uses, and who may see which row.

-- The caller's own tags and the system's, as one value: what visibility is decided by.
ALTER TABLE memory.document ADD tags text[] COLLATE "C"
  GENERATED ALWAYS AS (access_tags || system_tags) STORED;

-- The tags in use, so that a grant with a wildcard can be judged tag by tag. Grows, is never read row by row.
CREATE TABLE memory.access_tag (
  tenant_id text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  tag       text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant_id, tag)
);
ALTER TABLE memory.access_tag ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON memory.access_tag USING (tenant_id = current_setting('memory.tenant_id', true));
INSERT INTO memory.access_tag (tenant_id, tag)
SELECT DISTINCT d.tenant_id, t.tag FROM memory.document d CROSS JOIN LATERAL unnest(d.tags) AS t(tag);

-- Whether a caller may see what has this owner and these tags (ports.Visibility says the rule).
CREATE FUNCTION memory.admits(
  p_owner text, p_tags text[], p_document text, p_principal text, p_everything boolean, p_allowed text[], p_refused text[],
  p_vetoed text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT p_owner = p_principal
    OR (CASE WHEN p_everything THEN NOT p_tags <@ p_refused ELSE p_tags && p_allowed END
        AND NOT (p_tags && p_vetoed OR 'memory.doc:' || p_document = ANY (p_vetoed)))
$$;

-- Whether `r` carries one of some tags, as SQL.
CREATE FUNCTION memory.tags_predicate(p_tags text[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE WHEN cardinality(p_tags) <= 64 THEN format('r.access_tags && %L::text[]', p_tags)
    ELSE format('EXISTS (SELECT FROM unnest(r.access_tags) AS t(tag) WHERE t.tag = ANY (%L::text[]))', p_tags) END
$$;

-- As before, with grants that reach everything but some tags. What many tags reach comes as documents, and many tags that
-- reach more than that are hashed: `&&` compares each of them with each tag of a row.
CREATE OR REPLACE FUNCTION memory.scope_predicate(p_scope jsonb) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
  predicate text;
  reached text;
  listed text[];
BEGIN
  IF coalesce(tenant, '') = '' THEN
    RAISE EXCEPTION 'memory.tenant_id is not set in this transaction' USING ERRCODE = 'insufficient_privilege';
  END IF;
  predicate := format('r.tenant_id = %L AND r.generation = %L', tenant, p_scope ->> 'generation');
  IF p_scope ? 'everything' THEN
    listed := ARRAY(SELECT jsonb_array_elements_text(coalesce(p_scope -> 'refused', '[]')));
    reached := CASE WHEN listed = '{}' THEN 'true' ELSE format('NOT r.access_tags <@ %L::text[]', listed) END;
  ELSIF p_scope ? 'documents' THEN
    reached := format('r.document_id = ANY (%L::text[])', ARRAY(SELECT jsonb_array_elements_text(p_scope -> 'documents')));
  ELSIF p_scope ? 'allowed' THEN
    reached := memory.tags_predicate(ARRAY(SELECT jsonb_array_elements_text(p_scope -> 'allowed')));
  END IF;
  IF p_scope ? 'vetoed' THEN
    listed := ARRAY(SELECT jsonb_array_elements_text(p_scope -> 'vetoed'));
    reached := reached || ' AND NOT ' || memory.tags_predicate(listed);
    listed := ARRAY(SELECT substr(t.tag, 12) FROM unnest(listed) AS t(tag) WHERE t.tag LIKE 'memory.doc:%');
    IF listed <> '{}' THEN
      reached := reached || format(' AND r.document_id <> ALL (%L::text[])', listed);
    END IF;
  END IF;
  IF reached IS NULL THEN
    predicate := predicate || format(' AND r.owner_id = %L', p_scope ->> 'principal');
  ELSIF reached <> 'true' THEN
    predicate := predicate || format(' AND (r.owner_id = %L OR (%s))', p_scope ->> 'principal', reached);
  END IF;
  predicate := predicate || format(' AND r.status = ANY (%L::text[])',
    ARRAY(SELECT jsonb_array_elements_text(p_scope -> 'statuses')));
  IF p_scope ? 'kinds' THEN
    predicate := predicate || format(' AND r.kind = ANY (%L::text[])',
      ARRAY(SELECT jsonb_array_elements_text(p_scope -> 'kinds')));
  END IF;
  IF p_scope ? 'entities' THEN
    predicate := predicate || format(
      ' AND r.document_id IN (SELECT e.from_ref FROM memory.edge e WHERE e.tenant_id = %L AND e.to_type = ''entity'''
      ' AND e.to_ref = ANY (%L::text[]) AND e.from_type = ''document'')', tenant,
      ARRAY(SELECT jsonb_array_elements_text(p_scope -> 'entities')));
  END IF;
  IF p_scope ? 'occurred_after' THEN
    predicate := predicate || format(' AND r.occurred_at >= %L::timestamptz', p_scope ->> 'occurred_after');
  END IF;
  IF p_scope ? 'occurred_before' THEN
    predicate := predicate || format(' AND r.occurred_at < %L::timestamptz', p_scope ->> 'occurred_before');
  END IF;
  IF p_scope ? 'attributes' THEN
    predicate := predicate || format(' AND r.attributes @> %L::jsonb', p_scope -> 'attributes');
  END IF;
  RETURN predicate;
END $$;

-- Which documents some tags reach, at most p_most; NULL when they are more. Each tag is one look-up.
-- Runs as the owner for the same reason as lexical_candidates, and takes its tenant from the transaction alone.
CREATE FUNCTION memory.reachable_documents(p_tags text[], p_most integer) RETURNS text[]
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, memory, pg_temp
SET enable_seqscan = off SET enable_indexscan = off
AS $$
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
  found text[];
BEGIN
  IF coalesce(tenant, '') = '' THEN
    RAISE EXCEPTION 'memory.tenant_id is not set in this transaction' USING ERRCODE = 'insufficient_privilege';
  END IF;
  -- OFFSET 0 keeps it a look-up a tag; the tenant is spelt out, so that the planner sees one partition.
  EXECUTE format(
    'SELECT array_agg(DISTINCT n.document_id) FROM (SELECT r.document_id FROM unnest($1) AS a(tag) CROSS JOIN LATERAL ('
    ' SELECT r.document_id FROM memory.search_row r WHERE r.tenant_id = %L AND r.access_tags @> ARRAY[a.tag] OFFSET 0'
    ') AS r LIMIT $2) AS n', tenant) INTO found USING p_tags, p_most + 1;
  RETURN CASE WHEN cardinality(found) > p_most THEN NULL ELSE coalesce(found, '{}') END;
END $$;

-- The rows in scope, for whoever sees at most p_most of them. Runs as the owner for the same reason as
-- lexical_candidates.
CREATE FUNCTION memory.visible_chunks(p_scope jsonb, p_most integer) RETURNS text[]
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, memory, pg_temp
AS $$
DECLARE
  found text[];
BEGIN
  EXECUTE format('SELECT array_agg(v.chunk_id) FROM (SELECT r.chunk_id FROM memory.search_row r WHERE %s LIMIT %s) AS v',
                 memory.scope_predicate(p_scope), p_most) INTO found;
  RETURN coalesce(found, '{}');
END $$;

-- What hits are shown with, of what the caller may see by its grants. Claims for and against count once a principal.
CREATE FUNCTION memory.hit_details(
  p_chunks text[], p_principal text, p_everything boolean, p_allowed text[], p_refused text[], p_vetoed text[])
RETURNS TABLE (
  chunk_id text, text text, version_id text, version integer, status text, title text, kind text, document_id text,
  adapter text, external_ref text, last_seen_at timestamptz, owner_principal_id text, tags text[], author text, thread text,
  created_by_kind text, generator_agent_id text, provenance text, source_class text, temporal_class text,
  occurred_at timestamptz, valid_until timestamptz, authority real, entity_ids text[], derived_from text[],
  supports bigint, contradicts bigint)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, memory, {{EXTENSION_SCHEMAS}}, pg_temp SET jit = off
  SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
BEGIN
  RETURN QUERY
  SELECT c.id::text, c.text, v.id::text, v.version, v.status, v.title, v.kind::text, v.document_id::text,
    d.adapter::text, d.external_ref::text, d.last_seen_at, d.owner_principal_id::text, d.tags::text[], v.author, v.thread::text,
    v.created_by_kind, v.generator_agent_id::text, v.provenance, v.source_class, v.temporal_class,
    v.occurred_at, v.valid_until, v.authority,
    ARRAY(SELECT DISTINCT e.to_ref::text FROM memory.edge e WHERE e.tenant_id = tenant AND e.from_type = 'document'
          AND e.from_ref = v.document_id AND e.to_type = 'entity' ORDER BY 1),
    ARRAY(SELECT e.to_ref::text FROM memory.edge e
          JOIN memory.version s ON s.tenant_id = tenant AND s.id = e.to_ref
          JOIN memory.document o ON o.tenant_id = tenant AND o.id = s.document_id AND memory.admits(
            o.owner_principal_id, o.tags, o.id, p_principal, p_everything, p_allowed, p_refused, p_vetoed)
          WHERE e.tenant_id = tenant AND e.from_type = 'version' AND e.from_ref = v.id AND e.rel = 'derived_from'
          ORDER BY 1),
    coalesce(claims.supports, 0), coalesce(claims.contradicts, 0)
  FROM memory.chunk c
  JOIN memory.version v ON v.tenant_id = tenant AND v.id = c.version_id
  JOIN memory.document d ON d.tenant_id = tenant AND d.id = c.document_id
  LEFT JOIN LATERAL (
    SELECT count(DISTINCT s.created_by_principal_id) FILTER (WHERE e.rel = 'supports') AS supports,
      count(DISTINCT s.created_by_principal_id) FILTER (WHERE e.rel = 'contradicts') AS contradicts
    FROM memory.edge e
    JOIN memory.version s ON s.tenant_id = tenant AND s.id = e.from_ref AND s.status = 'active'
    JOIN memory.document o ON o.tenant_id = tenant AND o.id = s.document_id AND memory.admits(
      o.owner_principal_id, o.tags, o.id, p_principal, p_everything, p_allowed, p_refused, p_vetoed)
    WHERE e.tenant_id = tenant AND e.to_type = 'version' AND e.to_ref = v.id
      AND e.rel IN ('supports', 'contradicts') AND e.from_type = 'version'
  ) AS claims ON true
  WHERE c.tenant_id = tenant AND c.id = ANY (p_chunks) AND memory.admits(
    d.owner_principal_id, d.tags, d.id, p_principal, p_everything, p_allowed, p_refused, p_vetoed);
END $$;

-- The newest versions in scope. Runs as the owner for the same reason as lexical_candidates: tags are looked up in
-- a GIN index. Whoever sees few rows has them sorted; beyond p_small the timeline is walked, own documents first.
CREATE FUNCTION memory.timeline(p_scope jsonb, p_limit integer, p_small integer) RETURNS text[]
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, memory, pg_temp
AS $$
DECLARE
  predicate text := memory.scope_predicate(p_scope);
  own text := memory.scope_predicate(p_scope - 'everything' - 'allowed' - 'vetoed');
  visible integer;
  found text[];
  walk text := '(SELECT r.version_id, r.occurred_at FROM ('
    ' SELECT v.tenant_id, v.generation, v.owner_principal_id AS owner_id, v.status, v.kind, v.document_id, v.occurred_at,'
    '  v.attributes, v.id AS version_id, d.tags AS access_tags'
    ' FROM memory.version v JOIN memory.document d ON d.tenant_id = v.tenant_id AND d.id = v.document_id'
    ' WHERE v.status = ''active'') AS r WHERE %s ORDER BY r.occurred_at DESC, r.version_id DESC LIMIT $1)';
BEGIN
  IF predicate = own THEN
    EXECUTE format('SELECT array_agg(w.version_id ORDER BY w.occurred_at DESC, w.version_id DESC) FROM ' || walk || ' AS w',
                   own) INTO found USING p_limit;
    RETURN coalesce(found, '{}');
  END IF;
  EXECUTE format('SELECT count(*) FROM (SELECT FROM memory.search_row r WHERE %s LIMIT %s) AS v', predicate, p_small + 1)
  INTO visible;
  IF visible <= p_small THEN
    EXECUTE format(
      'SELECT array_agg(n.version_id ORDER BY n.occurred_at DESC, n.version_id DESC) FROM ('
      ' SELECT r.version_id, r.occurred_at FROM memory.search_row r WHERE %s AND r.ordinal = 0'
      ' ORDER BY r.occurred_at DESC, r.version_id DESC LIMIT $1) AS n', predicate) INTO found USING p_limit;
  ELSE
    EXECUTE format(
      'SELECT array_agg(n.version_id ORDER BY n.occurred_at DESC, n.version_id DESC) FROM ('
      ' SELECT version_id, occurred_at FROM (' || walk || ' UNION ' || walk || ') AS both_ways'
      ' ORDER BY occurred_at DESC, version_id DESC LIMIT $1) AS n', own, predicate) INTO found USING p_limit;
  END IF;
  RETURN coalesce(found, '{}');
END $$;
