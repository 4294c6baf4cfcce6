-- Earlier versions keep to those who could see them; many tags are looked up together; retractions know their readers.

-- The tags that a version is seen by: an active one by the document's; an earlier one by those of them that it was written
-- with, since a tag that the document has got since does not open what was there before it.
CREATE FUNCTION memory.version_tags(p_status text, p_written text[], p_tags text[]) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE WHEN p_status = 'active' THEN p_tags
    ELSE ARRAY(SELECT t.tag FROM unnest(p_tags) WITH ORDINALITY AS t(tag, place) WHERE t.tag = ANY (p_written) ORDER BY t.place)
    END
$$;

-- Whether a caller may see a version (ports.Visibility says the rule).
CREATE FUNCTION memory.admits_version(
  p_status text, p_written text[], p_owner text, p_tags text[], p_document text, p_principal text, p_everything boolean,
  p_allowed text[], p_refused text[], p_vetoed text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT memory.admits(p_owner, p_tags, p_document, p_principal, p_everything, p_allowed, p_refused, p_vetoed)
    AND (p_status = 'active' OR memory.admits(p_owner, memory.version_tags(p_status, p_written, p_tags), p_document,
                                              p_principal, p_everything, p_allowed, p_refused, p_vetoed))
$$;

-- Rows of deprecated versions, and their vectors, as deprecating writes them from now on.
UPDATE memory.search_row r SET access_tags = memory.version_tags(v.status, v.access_tags, d.tags)
FROM memory.version v JOIN memory.document d ON d.tenant_id = v.tenant_id AND d.id = v.document_id
WHERE r.status = 'deprecated' AND v.tenant_id = r.tenant_id AND v.id = r.version_id;
DO $$
DECLARE
  place text;
BEGIN
  FOR place IN SELECT DISTINCT 'embedding_' || m.model_key FROM memory.embed_model m
    WHERE to_regclass(format('memory.%I', 'embedding_' || m.model_key)) IS NOT NULL LOOP
    EXECUTE format('UPDATE memory.%I e SET access_tags = r.access_tags FROM memory.search_row r '
      'WHERE r.status = ''deprecated'' AND e.tenant_id = r.tenant_id AND e.chunk_id = r.chunk_id', place);
  END LOOP;
END $$;

-- Whether `r` carries a tag beside some, as SQL. Many are hashed.
CREATE FUNCTION memory.other_tags_predicate(p_tags text[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE WHEN cardinality(p_tags) <= 64 THEN format('NOT r.access_tags <@ %L::text[]', p_tags)
    ELSE format('EXISTS (SELECT FROM unnest(r.access_tags) AS t(tag) WHERE t.tag <> ALL (%L::text[]))', p_tags) END
$$;

-- As before, with many refused tags hashed, pages of the timeline, and what was there at an instant.
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
    reached := CASE WHEN listed = '{}' THEN 'true' ELSE memory.other_tags_predicate(listed) END;
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
  -- Vectors carry no validity: it is looked up.
  IF p_scope ? 'valid_at' THEN
    predicate := predicate || format(
      ' AND EXISTS (SELECT FROM memory.search_row w WHERE w.tenant_id = %1$L AND w.chunk_id = r.chunk_id'
      ' AND coalesce(w.valid_from <= %2$L::timestamptz, true) AND coalesce(w.valid_until > %2$L::timestamptz, true))',
      tenant, p_scope ->> 'valid_at');
  END IF;
  IF p_scope ? 'before' THEN
    predicate := predicate || format(' AND (r.occurred_at, r.version_id) < (%L::timestamptz, %L)',
      p_scope -> 'before' ->> 0, p_scope -> 'before' ->> 1);
  END IF;
  -- What was there at an instant and is there still. Rows of vectors know their chunk, those of the timeline their version.
  IF p_scope ? 'as_of' THEN
    predicate := predicate || format(
      ' AND EXISTS (SELECT FROM memory.chunk k JOIN memory.version w ON w.tenant_id = %1$L AND w.id = k.version_id'
      ' WHERE k.tenant_id = %1$L AND k.id = r.chunk_id AND w.ingested_at <= %2$L::timestamptz'
      ' AND (w.status = ''active'' OR w.deprecated_at > %2$L::timestamptz))', tenant, p_scope ->> 'as_of');
  END IF;
  IF p_scope ? 'versions_as_of' THEN
    predicate := predicate || format(
      ' AND EXISTS (SELECT FROM memory.version w WHERE w.tenant_id = %1$L AND w.id = r.version_id'
      ' AND w.ingested_at <= %2$L::timestamptz)', tenant, p_scope ->> 'versions_as_of');
  END IF;
  RETURN predicate;
END $$;

-- Which documents some tags reach; NULL when that takes more than p_most rows. 64 tags are one look-up: each row is found
-- by them once, and the index's list of pending rows is read once.
-- Runs as the owner for the same reason as lexical_candidates, and takes its tenant from the transaction alone.
CREATE OR REPLACE FUNCTION memory.reachable_documents(p_tags text[], p_most integer) RETURNS text[]
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, memory, pg_temp
SET enable_seqscan = off SET enable_indexscan = off
AS $$
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
  found text[];
  looked_at bigint;
BEGIN
  IF coalesce(tenant, '') = '' THEN
    RAISE EXCEPTION 'memory.tenant_id is not set in this transaction' USING ERRCODE = 'insufficient_privilege';
  END IF;
  -- OFFSET 0 keeps them look-ups; the tenant is spelt out, so that the planner sees one partition.
  EXECUTE format(
    'SELECT array_agg(DISTINCT n.document_id), count(*) FROM (SELECT r.document_id FROM ('
    '  SELECT array_agg(t.tag) AS tags FROM unnest($1) WITH ORDINALITY AS t(tag, place) GROUP BY t.place / 64) AS a'
    ' CROSS JOIN LATERAL ('
    '  SELECT r.document_id FROM memory.search_row r WHERE r.tenant_id = %L AND r.access_tags && a.tags OFFSET 0'
    ') AS r LIMIT $2) AS n', tenant) INTO found, looked_at USING p_tags, p_most + 1;
  RETURN CASE WHEN looked_at > p_most THEN NULL ELSE coalesce(found, '{}') END;
END $$;

-- As before; an earlier version also by what it was written with, and what that was is told.
DROP FUNCTION memory.hit_details(text[], text, boolean, text[], text[], text[]);
CREATE FUNCTION memory.hit_details(
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
  SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
BEGIN
  RETURN QUERY
  SELECT c.id::text, c.text, v.id::text, v.version, v.status, v.title, v.kind::text, v.document_id::text,
    d.adapter::text, d.external_ref::text, d.last_seen_at, d.owner_principal_id::text, d.tags::text[],
    v.access_tags::text[], v.author, v.thread::text,
    v.created_by_kind, v.generator_agent_id::text, v.provenance, v.source_class, v.temporal_class,
    v.occurred_at, v.valid_until, v.authority,
    ARRAY(SELECT DISTINCT e.to_ref::text FROM memory.edge e WHERE e.tenant_id = tenant AND e.from_type = 'document'
          AND e.from_ref = v.document_id AND e.to_type = 'entity' ORDER BY 1),
    ARRAY(SELECT e.to_ref::text FROM memory.edge e
          JOIN memory.version s ON s.tenant_id = tenant AND s.id = e.to_ref
          JOIN memory.document o ON o.tenant_id = tenant AND o.id = s.document_id AND memory.admits_version(
            s.status, s.access_tags, o.owner_principal_id, o.tags, o.id, p_principal, p_everything, p_allowed, p_refused,
            p_vetoed)
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
  WHERE c.tenant_id = tenant AND c.id = ANY (p_chunks) AND memory.admits_version(
    v.status, v.access_tags, d.owner_principal_id, d.tags, d.id, p_principal, p_everything, p_allowed, p_refused, p_vetoed);
END $$;

-- Who could see by name what has been retracted: with the document its grants go. NULL: not told yet.
ALTER TABLE memory.feed_event ADD peers text[] COLLATE "C";
CREATE INDEX feed_event_retracted ON memory.feed_event (tenant_id, document_id) WHERE op = 'retract';

-- The newest versions in scope, as before; what many tags reach is not taken for the caller's own. Runs as the owner for
-- the same reason as lexical_candidates: tags are looked up in a GIN index. Whoever sees few rows has them sorted; beyond p_small the timeline is walked, own documents first.
CREATE OR REPLACE FUNCTION memory.timeline(p_scope jsonb, p_limit integer, p_small integer) RETURNS text[]
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, memory, pg_temp
AS $$
DECLARE
  predicate text := memory.scope_predicate(p_scope);
  own text := memory.scope_predicate(p_scope - 'everything' - 'allowed' - 'documents' - 'vetoed');
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

-- as_of: what has been replaced or taken out of use since.
CREATE INDEX version_ended ON memory.version (tenant_id, generation, (coalesce(superseded_at, deprecated_at)))
  WHERE coalesce(superseded_at, deprecated_at) IS NOT NULL;

-- Scores of texts that no index holds any more, as if they were searched now: by the idf of what the caller sees today.
-- p_rows: id, language, head and body of each, normalised as the searched ones are.
CREATE FUNCTION memory.past_scores(
  p_scope jsonb, p_query text, p_required text[], p_excluded text[], p_small integer, p_rows jsonb)
RETURNS TABLE (chunk_id text, bm25 float8)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, memory, {{EXTENSION_SCHEMAS}}, pg_temp SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  asked record;
BEGIN
  SELECT * INTO asked FROM memory.lexical_candidates(p_scope, p_query, '{}', '{}', 1, p_small);
  RETURN QUERY
  WITH analysed AS MATERIALIZED (
    SELECT x.id, x.language, memory.analyse(x.language, x.head, x.body) AS fts
    FROM jsonb_to_recordset(p_rows) AS x(id text, language text, head text, body text)
  )
  SELECT a.id, CASE
    WHEN p_query = '' THEN 0
    -- Nothing is there today that could say which words are rare: all count the same.
    WHEN cardinality(asked.queries) = 0 THEN (
      SELECT count(*) FILTER (WHERE l = ANY (tsvector_to_array(a.fts)))::float8 / greatest(count(*), 1)
      FROM unnest(memory.query_lexemes(a.language, p_query)) AS l)
    ELSE coalesce(-(memory.bm25_vector(a.fts) <#> asked.queries[array_position(asked.languages, a.language)])
                  / nullif(asked.totals[array_position(asked.languages, a.language)], 0), 0) END
  FROM analysed a
  WHERE NOT EXISTS (
      SELECT FROM unnest(p_required) AS p(phrase) CROSS JOIN LATERAL phraseto_tsquery(a.language::regconfig, p.phrase) AS q
      WHERE numnode(q) > 0 AND NOT a.fts @@ q)
    AND NOT EXISTS (
      SELECT FROM unnest(p_excluded) AS p(phrase) CROSS JOIN LATERAL phraseto_tsquery(a.language::regconfig, p.phrase) AS q
      WHERE numnode(q) > 0 AND a.fts @@ q);
END $$;
