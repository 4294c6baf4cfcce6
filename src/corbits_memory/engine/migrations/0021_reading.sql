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

-- As before (0012); deprecated versions of documents that many tags reach are judged by their own tags, which come along.
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
    -- A document is reached by what it carries now, a deprecated version by what it was written with of that.
    IF p_scope ? 'allowed' AND p_scope -> 'statuses' ? 'deprecated' THEN
      listed := ARRAY(SELECT jsonb_array_elements_text(p_scope -> 'allowed'));
      reached := format('%s AND (r.status = ''active'' OR %s)', reached, memory.tags_predicate(listed));
    END IF;
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

-- As before (0019), by the same rule.
CREATE OR REPLACE FUNCTION memory.complete(
  p_scope jsonb, p_predicate text, p_lexical text[], p_dense text[], p_cosines float8[], p_seeds integer,
  p_languages text[], p_queries sparsevec[], p_totals float8[], p_place text, p_half halfvec, p_whole vector,
  OUT chunk_ids text[], OUT document_ids text[], OUT threads text[], OUT authors text[],
  OUT asks boolean[], OUT words integer[], OUT authorities real[], OUT temporal_classes text[],
  OUT occurred float8[], OUT expires float8[], OUT bm25 float8[],
  OUT vector_ids text[], OUT cosines float8[], OUT windows text[])
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, memory, {{EXTENSION_SCHEMAS}}, pg_temp SET jit = off
  SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
  searched text := p_scope ->> 'generation';
  statuses text[] := ARRAY(SELECT jsonb_array_elements_text(p_scope -> 'statuses'));
  principal text := p_scope ->> 'principal';
  everything boolean := p_scope ? 'everything';
  allowed jsonb := memory.lookup(p_scope -> 'allowed');
  named jsonb := CASE WHEN p_scope ? 'documents' AND NOT (p_scope ? 'allowed' AND p_scope -> 'statuses' ? 'deprecated')
    THEN memory.lookup(p_scope -> 'documents') END;
  refused jsonb := memory.lookup(p_scope -> 'refused');
  vetoed jsonb := memory.lookup(p_scope -> 'vetoed');
  -- Their vectors are not known yet.
  others text[] := p_lexical;
  wanted text[];
BEGIN
  SELECT array_agg(ARRAY[a.before[3], a.before[2], a.before[1], a.chunk_id, a.after[1], a.after[2], a.after[3]]::text[])
  INTO windows
  FROM (
    SELECT b.chunk_id,
      ARRAY(SELECT r.chunk_id FROM memory.search_row r
        WHERE r.tenant_id = tenant AND r.generation = searched AND r.context_key = b.context_key
          AND (r.occurred_at, r.thread_seq, r.chunk_id) < (b.occurred_at, b.thread_seq, b.chunk_id)
          AND r.status = ANY (statuses)
          AND memory.reaches(r.owner_id, r.access_tags, r.document_id, principal, everything, allowed, named, refused, vetoed)
        ORDER BY r.occurred_at DESC, r.thread_seq DESC, r.chunk_id DESC LIMIT 3) AS before,
      ARRAY(SELECT r.chunk_id FROM memory.search_row r
        WHERE r.tenant_id = tenant AND r.generation = searched AND r.context_key = b.context_key
          AND (r.occurred_at, r.thread_seq, r.chunk_id) > (b.occurred_at, b.thread_seq, b.chunk_id)
          AND r.status = ANY (statuses)
          AND memory.reaches(r.owner_id, r.access_tags, r.document_id, principal, everything, allowed, named, refused, vetoed)
        ORDER BY r.occurred_at, r.thread_seq, r.chunk_id LIMIT 3) AS after
    FROM memory.search_row b
    WHERE b.tenant_id = tenant AND b.context_key IS NOT NULL
      AND b.chunk_id = ANY (p_lexical[:p_seeds] || p_dense[:p_seeds])
  ) AS a;
  IF windows IS NOT NULL THEN
    others := others || array_remove(ARRAY(SELECT unnest(windows)), NULL);
  END IF;
  wanted := p_dense || others;
  IF p_predicate <> '' THEN
    EXECUTE format('SELECT array_agg(r.chunk_id) FROM memory.search_row r '
                   'WHERE r.chunk_id = ANY ((SELECT $1)::text[]) AND %s', p_predicate) INTO wanted USING wanted;
  END IF;
  SELECT array_agg(r.chunk_id::text), array_agg(r.document_id::text), array_agg(r.thread::text),
    array_agg(r.author), array_agg(r.asks), array_agg(r.words), array_agg(r.authority), array_agg(r.temporal_class),
    array_agg(date_part('epoch', r.occurred_at)), array_agg(date_part('epoch', r.valid_until)),
    array_agg(CASE cardinality(p_queries) WHEN 0 THEN 0
      WHEN 1 THEN coalesce(-(r.lex <#> p_queries[1]) / nullif(p_totals[1], 0), 0)
      ELSE coalesce(-(r.lex <#> p_queries[array_position(p_languages, r.language)])
                    / nullif(p_totals[array_position(p_languages, r.language)], 0), 0) END)
  INTO chunk_ids, document_ids, threads, authors, asks, words, authorities, temporal_classes, occurred, expires, bm25
  FROM memory.search_row r
  WHERE r.tenant_id = tenant AND r.chunk_id = ANY (wanted) AND r.generation = searched AND r.status = ANY (statuses)
    AND memory.reaches(r.owner_id, r.access_tags, r.document_id, principal, everything, allowed, named, refused, vetoed);
  IF p_place IS NOT NULL THEN
    EXECUTE format('SELECT array_agg(e.chunk_id::text), array_agg(1 - (e.embedding <=> %s)) FROM memory.%I e '
                   'WHERE e.tenant_id = %L AND e.chunk_id = ANY ((SELECT $1)::text[])',
                   CASE WHEN p_half IS NULL THEN '$3' ELSE '$2' END, p_place, tenant)
    INTO vector_ids, cosines USING others, p_half, p_whole;
    vector_ids := p_dense || vector_ids;
    cosines := p_cosines || cosines;
  END IF;
END $$;

-- Rows of deprecated versions, and their vectors, of documents that have got other tags with a later version since.
UPDATE memory.search_row r SET access_tags = memory.version_tags(v.status, v.access_tags, d.tags)
FROM memory.version v JOIN memory.document d ON d.tenant_id = v.tenant_id AND d.id = v.document_id
WHERE r.status = 'deprecated' AND v.tenant_id = r.tenant_id AND v.id = r.version_id
  AND r.access_tags <> memory.version_tags(v.status, v.access_tags, d.tags);
DO $$
DECLARE
  place text;
BEGIN
  FOR place IN SELECT DISTINCT 'embedding_' || m.model_key FROM memory.embed_model m
    WHERE to_regclass(format('memory.%I', 'embedding_' || m.model_key)) IS NOT NULL LOOP
    EXECUTE format('UPDATE memory.%I e SET access_tags = r.access_tags FROM memory.search_row r '
      'WHERE r.status = ''deprecated'' AND e.tenant_id = r.tenant_id AND e.chunk_id = r.chunk_id '
      'AND e.access_tags <> r.access_tags', place);
  END LOOP;
END $$;
