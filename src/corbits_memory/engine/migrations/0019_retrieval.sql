-- Retrieval again. Its statements on rows of their own keys are planned once a session: their conditions are values,
-- and who may see a row is one function of it. Neighbours are whatever rows the caller may see, whatever the filters are.

-- A list as a set: a short one as it is, a long one as keys, which are found by bisection.
CREATE FUNCTION memory.lookup(p_list jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE WHEN p_list IS NULL THEN '[]' WHEN jsonb_array_length(p_list) <= 64 THEN p_list
    ELSE (SELECT jsonb_object_agg(name, 1) FROM jsonb_array_elements_text(p_list) AS name) END
$$;

-- Whether a caller may see what has this owner and these tags: the rule of memory.admits, and of scope_predicate, with
-- p_documents in place of p_allowed where that is not NULL. Lists come from memory.lookup.
CREATE FUNCTION memory.reaches(
  p_owner text, p_tags text[], p_document text, p_principal text, p_everything boolean, p_allowed jsonb,
  p_documents jsonb, p_refused jsonb, p_vetoed jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT p_owner = p_principal
    OR (CASE WHEN p_everything THEN NOT p_refused ?& p_tags
             WHEN p_documents IS NOT NULL THEN p_documents ? p_document
             ELSE p_allowed ?| p_tags END
        AND NOT (p_vetoed ?| p_tags OR p_vetoed ? ('memory.doc:' || p_document)))
$$;

-- As before; whether there are any counts at all is asked only where none was found.
CREATE OR REPLACE FUNCTION memory.document_frequencies(
  p_predicate text, p_generation text, p_terms integer[], p_few boolean, p_counted boolean) RETURNS bigint[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
  dfs bigint[];
BEGIN
  IF p_few THEN
    EXECUTE format(
      'WITH m AS MATERIALIZED (SELECT r.terms FROM memory.search_row r WHERE %s AND r.terms && $1) '
      'SELECT array_agg((SELECT count(*) FROM m WHERE m.terms @> ARRAY[t.term]) ORDER BY t.i) '
      'FROM unnest($1) WITH ORDINALITY AS t(term, i)', p_predicate) INTO dfs USING p_terms;
    RETURN dfs;
  END IF;
  IF p_counted THEN
    -- One look-up a term: a join would read all of the tenant's terms.
    SELECT array_agg(coalesce((SELECT s.df FROM memory.term_stat s WHERE s.tenant_id = tenant
      AND s.generation = p_generation AND s.term = t.term), 0) ORDER BY t.i) INTO dfs
    FROM unnest(p_terms) WITH ORDINALITY AS t(term, i);
    IF 0 < ANY (dfs) OR EXISTS (SELECT FROM memory.term_stat s WHERE s.tenant_id = tenant
                                AND s.generation = p_generation) THEN
      RETURN dfs;
    END IF;
  END IF;
  EXECUTE format(
    'SELECT array_agg((SELECT count(*) FROM (SELECT FROM memory.search_row r WHERE r.tenant_id = %L '
    'AND r.terms @> ARRAY[t.term] LIMIT 50000) AS c) ORDER BY t.i) '
    'FROM unnest($1) WITH ORDINALITY AS t(term, i)', tenant) INTO dfs USING p_terms;
  RETURN dfs;
END $$;

-- As before. p_many: the caller sees more than p_small rows, and they need not be counted.
DROP FUNCTION memory.lexical_candidates(jsonb, text, text[], text[], integer, integer);
CREATE FUNCTION memory.lexical_candidates(
  p_scope jsonb, p_query text, p_required text[], p_excluded text[], p_limit integer, p_small integer,
  p_many boolean DEFAULT false,
  OUT visible integer, OUT languages text[], OUT queries sparsevec[], OUT totals float8[], OUT known float8,
  OUT predicate text, OUT chunk_ids text[])
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, memory, {{EXTENSION_SCHEMAS}}, pg_temp
AS $$
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
  generation text := p_scope ->> 'generation';
  rows_counted bigint;
  lexemes text[] := '{}';
  terms integer[];
  dfs bigint[];
  rare integer[] := '{}';
  rare_rows bigint := 0;
  common integer[] := '{}';
  common_df bigint[] := '{}';
  matching text;
  phrase text;
  own text[];
  alike text[];
  added integer[];
  counted boolean := true;
  i integer;
BEGIN
  predicate := memory.scope_predicate(p_scope);
  SELECT s.languages, s.stats_rows INTO languages, rows_counted
  FROM memory.tenant_state s WHERE s.tenant_id = tenant;
  IF p_many THEN
    visible := p_small + 1;
  ELSE
    EXECUTE format('SELECT count(*) FROM (SELECT FROM memory.search_row r WHERE %s LIMIT %s) AS v',
                   predicate, p_small + 1) INTO visible;
  END IF;

  FOREACH phrase IN ARRAY p_required LOOP
    predicate := predicate || ' AND ' || memory.phrase_predicate(languages, phrase, true);
  END LOOP;
  FOREACH phrase IN ARRAY p_excluded LOOP
    predicate := predicate || ' AND NOT ' || memory.phrase_predicate(languages, phrase, false);
  END LOOP;

  chunk_ids := '{}';
  queries := '{}';
  totals := '{}';
  known := 0;
  IF visible = 0 THEN
    RETURN;
  END IF;
  IF p_query = '' THEN
    -- Only filters: the newest of what they leave.
    EXECUTE format(
      'SELECT coalesce(array_agg(n.chunk_id), ''{}'') FROM (SELECT r.chunk_id FROM memory.search_row r WHERE %s '
      'ORDER BY r.occurred_at DESC, r.chunk_id DESC LIMIT $1) AS n', predicate) INTO chunk_ids USING p_limit;
    RETURN;
  END IF;

  FOREACH phrase IN ARRAY languages LOOP
    lexemes := lexemes || memory.query_lexemes(phrase, p_query);
  END LOOP;
  SELECT array_agg(l ORDER BY l), array_agg(memory.term_hash(tenant, generation, l) ORDER BY l)
  INTO lexemes, terms FROM (SELECT DISTINCT unnest(lexemes) AS l LIMIT 256) AS d;
  IF lexemes IS NULL THEN
    RETURN;
  END IF;

  -- Few rows: everything is counted among what the caller sees.
  IF visible <= p_small THEN
    rows_counted := visible;
  ELSIF rows_counted IS NULL THEN
    SELECT s.chunk_count INTO rows_counted FROM memory.tenant_state s WHERE s.tenant_id = tenant;
    counted := false;
  END IF;
  rows_counted := greatest(rows_counted, 1);
  dfs := memory.document_frequencies(predicate, generation, terms, visible <= p_small, counted);

  -- Words that nobody wrote: perhaps they were written otherwise.
  alike := memory.similar_lexemes(predicate, lexemes, dfs, rows_counted, p_small);
  IF cardinality(alike) > 0 THEN
    lexemes := lexemes || alike;
    added := ARRAY(SELECT memory.term_hash(tenant, generation, l) FROM unnest(alike) AS l);
    terms := terms || added;
    dfs := dfs || memory.document_frequencies(predicate, generation, added, visible <= p_small, counted);
  END IF;

  IF visible <= p_small THEN
    rare := terms;
  ELSE
    -- Candidates come from the rarest terms; of the rest, from pairs. Scores are of all terms.
    FOREACH i IN ARRAY ARRAY(SELECT o::integer FROM unnest(dfs) WITH ORDINALITY AS d(df, o) ORDER BY df, o) LOOP
      IF rare = '{}' OR rare_rows + dfs[i] <= 4000 THEN
        rare := rare || terms[i];
        rare_rows := rare_rows + dfs[i];
      ELSE
        common := common || terms[i];
        common_df := common_df || dfs[i];
      END IF;
    END LOOP;
  END IF;

  -- One query vector a language, from the idf of its own lexemes.
  FOREACH phrase IN ARRAY languages LOOP
    own := memory.query_lexemes(phrase, p_query) || alike;
    SELECT queries || ('{' || coalesce(string_agg(dim || ':' || idf, ',' ORDER BY dim), '')
                       || '}/268435456')::sparsevec,
           totals || coalesce(sum(idf), 0), greatest(known, coalesce(sum(idf) FILTER (WHERE seen) / sum(idf), 0))
    INTO queries, totals, known
    FROM (
      SELECT memory.lexeme_dim(l) AS dim, bool_or(df > 0) AS seen,
             sum(ln(1 + (greatest(rows_counted, df) - df + 0.5) / (df + 0.5)))::real AS idf
      FROM unnest(lexemes, dfs) AS t(l, df) WHERE l = ANY (own) GROUP BY 1
    ) AS weight;
  END LOOP;

  matching := 'r.terms && $1';
  FOR a IN 1 .. least(cardinality(common), 6) LOOP
    FOR b IN a + 1 .. least(cardinality(common), 6) LOOP
      IF common_df[a] <= 20000 THEN
        matching := matching || format(' OR r.terms @> %L::integer[]', ARRAY[common[a], common[b]]);
      END IF;
    END LOOP;
  END LOOP;
  -- The inner limit bounds a query of one very common word.
  EXECUTE format(
    'SELECT coalesce(array_agg(s.chunk_id), ''{}'') FROM ('
    ' SELECT m.chunk_id FROM (SELECT r.chunk_id, r.lex, r.language FROM memory.search_row r'
    '  WHERE %s AND (%s) LIMIT 20000) AS m'
    ' ORDER BY m.lex <#> %s, m.chunk_id LIMIT $3) AS s',
    predicate, matching,
    CASE WHEN cardinality(languages) = 1 THEN '($2)[1]' ELSE '($2)[array_position($4, m.language)]' END)
  INTO chunk_ids USING rare, queries, p_limit, languages;
END $$;

-- As before, with the cosines of what is found.
DROP FUNCTION memory.dense_exact(text, halfvec, vector, text, integer);
DROP FUNCTION memory.dense_nearest(text, halfvec, vector, text, integer, text[]);
CREATE FUNCTION memory.dense_exact(
  p_table text, p_half halfvec, p_whole vector, p_predicate text, p_limit integer,
  OUT chunk_ids text[], OUT cosines float8[], OUT mean float8, OUT deviation float8, OUT vectors bigint)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  EXECUTE format(
    'WITH v AS MATERIALIZED (SELECT r.chunk_id, r.embedding <=> %s AS d FROM memory.%I r WHERE %s), '
    'top AS (SELECT chunk_id, d FROM v ORDER BY d, chunk_id LIMIT $1) '
    'SELECT (SELECT coalesce(array_agg(chunk_id), ''{}'') FROM top), (SELECT array_agg(1 - d) FROM top), '
    ' avg(1 - d), stddev_pop(1 - d), count(*) FROM v',
    CASE WHEN p_half IS NULL THEN '$3' ELSE '$2' END, p_table, p_predicate)
  INTO chunk_ids, cosines, mean, deviation, vectors USING p_limit, p_half, p_whole;
END $$;

CREATE FUNCTION memory.dense_nearest(
  p_table text, p_half halfvec, p_whole vector, p_predicate text, p_limit integer, p_sample text[],
  OUT chunk_ids text[], OUT cosines float8[], OUT mean float8, OUT deviation float8, OUT vectors bigint)
LANGUAGE plpgsql STABLE
SET enable_sort = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
  PERFORM set_config('hnsw.ef_search', least(greatest(p_limit * 5 / 2, 125), 1000)::text, true),
          set_config('hnsw.iterative_scan', 'relaxed_order', true),
          set_config('hnsw.max_scan_tuples', '40000', true);
  IF p_sample IS NULL THEN
    EXECUTE format('SELECT array_agg(f.chunk_id) FROM (SELECT r.chunk_id FROM memory.%I r WHERE r.tenant_id = %L '
                   'ORDER BY r.chunk_id LIMIT 64) AS f', p_table, current_setting('memory.tenant_id'))
    INTO p_sample;
  END IF;
  EXECUTE format(
    'SELECT coalesce(t.chunk_ids, ''{}''), t.cosines, s.mean, s.deviation, s.vectors FROM ('
    ' SELECT array_agg(n.chunk_id ORDER BY n.d, n.chunk_id) AS chunk_ids, '
    '  array_agg(1 - n.d ORDER BY n.d, n.chunk_id) AS cosines FROM ('
    '   SELECT r.chunk_id, r.embedding <=> %3$s AS d FROM memory.%1$I r WHERE %2$s '
    '   ORDER BY r.embedding <=> %3$s LIMIT $1) AS n) AS t '
    'CROSS JOIN (SELECT avg(e.cosine) AS mean, stddev_pop(e.cosine) AS deviation, count(e.cosine) AS vectors FROM ('
    '  SELECT 1 - (r.embedding <=> %3$s) AS cosine FROM memory.%1$I r '
    '  WHERE r.tenant_id = %4$L AND r.chunk_id = ANY ((SELECT $4)::text[])) AS e) AS s',
    p_table, p_predicate, CASE WHEN p_half IS NULL THEN '$3' ELSE '$2' END, current_setting('memory.tenant_id'))
  INTO chunk_ids, cosines, mean, deviation, vectors USING p_limit, p_half, p_whole, p_sample;
END $$;

-- The rows around the best candidates, and both scores of each of them all, exact. Every row is found by its key, whatever
-- the planner knows of the tables by then: these plans stay.
--   p_predicate   what candidates must be, phrases and filters included; '' where that is p_scope's visibility alone
--   p_cosines     of p_dense
--   p_place       the table of vectors, NULL without one; the query's vector is p_half or p_whole, as its type is
-- The columns are those of memory.retrieve.
CREATE FUNCTION memory.complete(
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
  named jsonb := CASE WHEN p_scope ? 'documents' THEN memory.lookup(p_scope -> 'documents') END;
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

DROP FUNCTION memory.retrieve(jsonb, text, text[], text[], integer, integer, text, integer, text);

-- Both channels' candidates, their neighbours, and both scores of each, exact. One row: a column of the candidates is an
-- array, and all run parallel. searched: the generation, without one in the scope the live one. dense_ready: p_model_key,
-- which embedded the query, is the tenant's active model. Of another generation the caller says which model it has.
--   p_many              see lexical_candidates
--   occurred, expires   seconds since 1970; expires is valid_until
--   bm25                divided by the idf total of the row's language, so that rows of several languages compare
--   vector_ids, cosines parallel to each other, some twice; a candidate that is missing there has no vector yet
--   windows             of each seed that stands in a context: up to three visible rows before it, itself, three after it
--                       (NULL where there is none). Seeds are the best of each channel: with more of them, rankings got worse
CREATE FUNCTION memory.retrieve(
  p_scope jsonb, p_query text, p_required text[], p_excluded text[], p_limit integer, p_small integer, p_many boolean,
  p_model_key text, p_dims integer, p_vector text,
  OUT searched text, OUT dense_ready boolean, OUT partial boolean,
  OUT visible integer, OUT known float8, OUT mean float8, OUT deviation float8, OUT vectors bigint,
  OUT lexical_ids text[], OUT dense_ids text[],
  OUT chunk_ids text[], OUT document_ids text[], OUT threads text[], OUT authors text[],
  OUT asks boolean[], OUT words integer[], OUT authorities real[], OUT temporal_classes text[],
  OUT occurred float8[], OUT expires float8[], OUT bm25 float8[],
  OUT vector_ids text[], OUT cosines float8[], OUT windows text[])
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, memory, {{EXTENSION_SCHEMAS}}, pg_temp SET jit = off
  SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
  live text;
  scope text;
  lex record;
  den record;
  near float8[];
  model record;
  half halfvec;
  whole vector;
BEGIN
  SELECT s.live_generation INTO live FROM memory.tenant_state s WHERE s.tenant_id = tenant;
  IF NOT found THEN
    RETURN;
  END IF;
  p_scope := jsonb_build_object('generation', live) || p_scope;
  searched := p_scope ->> 'generation';
  SELECT 'embedding_' || m.model_key AS place, m.vector_type, m.sample INTO model FROM memory.embed_model m
  WHERE m.tenant_id = tenant AND m.model_key = p_model_key AND m.dims = p_dims
    AND (m.status = 'active' OR searched <> live);
  dense_ready := found;
  partial := EXISTS (SELECT FROM memory.embed_queue q WHERE q.tenant_id = tenant
                     AND q.generation = searched AND q.owner_id = p_scope ->> 'principal' AND NOT q.refill);
  scope := memory.scope_predicate(p_scope);
  SELECT * INTO lex FROM memory.lexical_candidates(p_scope, p_query, p_required, p_excluded, p_limit, p_small, p_many);
  visible := lex.visible;
  IF visible = 0 THEN
    RETURN;
  END IF;
  known := lex.known;
  lexical_ids := lex.chunk_ids;
  dense_ids := '{}';
  IF dense_ready THEN
    IF model.vector_type = 'halfvec' THEN
      half := p_vector::halfvec;
    ELSE
      whole := p_vector::vector;
    END IF;
    IF visible <= p_small THEN
      SELECT * INTO den FROM memory.dense_exact(model.place, half, whole, memory.exact_scope(p_scope, p_small), p_limit);
    ELSE
      SELECT * INTO den FROM memory.dense_nearest(model.place, half, whole, scope, p_limit, model.sample);
    END IF;
    dense_ids := den.chunk_ids;
    near := den.cosines;
    mean := den.mean;
    deviation := den.deviation;
    vectors := den.vectors;
  END IF;
  SELECT c.* INTO chunk_ids, document_ids, threads, authors, asks, words, authorities, temporal_classes, occurred, expires,
    bm25, vector_ids, cosines, windows
  FROM memory.complete(
    p_scope,
    CASE WHEN lex.predicate = scope AND p_scope - ARRAY['generation', 'principal', 'everything', 'allowed', 'documents',
                                                        'refused', 'vetoed', 'statuses'] = '{}' THEN ''
         ELSE lex.predicate END,
    lexical_ids, dense_ids, near, greatest(4, p_limit / 12), lex.languages, lex.queries, lex.totals,
    CASE WHEN dense_ready THEN model.place END, half, whole) AS c;
END $$;
