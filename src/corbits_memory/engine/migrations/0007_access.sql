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

-- As before, with grants that reach everything but some tags.
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
  ELSIF p_scope ? 'allowed' THEN
    reached := format('r.access_tags && %L::text[]', ARRAY(SELECT jsonb_array_elements_text(p_scope -> 'allowed')));
  END IF;
  IF p_scope ? 'vetoed' THEN
    reached := reached || format(' AND NOT r.access_tags && %L::text[]',
      ARRAY(SELECT jsonb_array_elements_text(p_scope -> 'vetoed')));
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
