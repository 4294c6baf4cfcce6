-- Callers with thousands of grants.

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

-- Whether `r` carries one of some tags, as SQL.
CREATE FUNCTION memory.tags_predicate(p_tags text[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE WHEN cardinality(p_tags) <= 64 THEN format('r.access_tags && %L::text[]', p_tags)
    ELSE format('EXISTS (SELECT FROM unnest(r.access_tags) AS t(tag) WHERE t.tag = ANY (%L::text[]))', p_tags) END
$$;

-- As before; what many tags reach comes as documents, and many tags that reach more than that are hashed: `&&` compares
-- each of them with each tag of a row.
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
    reached := reached || ' AND NOT '
      || memory.tags_predicate(ARRAY(SELECT jsonb_array_elements_text(p_scope -> 'vetoed')));
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
