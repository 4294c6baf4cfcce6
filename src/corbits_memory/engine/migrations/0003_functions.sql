-- Text analysis and candidate retrieval. `r` is the searched row in every assembled statement.

CREATE FUNCTION memory.term_hash(p_tenant text, p_generation text, p_lexeme text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$
  SELECT ('x' || left(encode(sha256(convert_to(p_tenant || E'\x1f' || p_generation || E'\x1f' || p_lexeme, 'UTF8')),
                             'hex'), 8))::bit(32)::integer
$$;

-- One of 2^28 dimensions, from 1. Lexemes that meet on one are summed, in rows and queries alike.
CREATE FUNCTION memory.lexeme_dim(p_lexeme text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$
  SELECT 1 + ('x' || left(encode(sha256(convert_to(p_lexeme, 'UTF8')), 'hex'), 7))::bit(28)::integer
$$;

-- What a row is found by: title and author, then the text. A text of stop words alone is kept word by word,
-- so that "to be or not to be" can be found.
CREATE FUNCTION memory.analyse(p_language text, p_head text, p_text text) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT setweight(to_tsvector(p_language::regconfig, coalesce(p_head, '')), 'A')
      || CASE WHEN numnode(plainto_tsquery(p_language::regconfig, p_text)) > 0
              THEN to_tsvector(p_language::regconfig, p_text) ELSE to_tsvector('simple', p_text) END
$$;

CREATE FUNCTION memory.term_hashes(p_tenant text, p_generation text, p_fts tsvector) RETURNS integer[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT coalesce(array_agg(DISTINCT memory.term_hash(p_tenant, p_generation, l)), '{}')
  FROM unnest(tsvector_to_array(p_fts)) AS l
$$;

-- Okapi BM25's saturated term frequency, k1 1.2, b 0.75, mean length 120 (spec: default ranking, 2).
CREATE FUNCTION memory.bm25_vector(p_fts tsvector) RETURNS sparsevec
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  WITH lexeme AS (
    SELECT memory.lexeme_dim(l.lexeme) AS dim, cardinality(l.positions)::float8 AS tf FROM unnest(p_fts) AS l
  ), weight AS (
    SELECT dim, sum(tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * (SELECT sum(tf) FROM lexeme) / 120.0)))::real AS value
    FROM lexeme GROUP BY dim
  )
  SELECT ('{' || coalesce(string_agg(dim || ':' || value, ',' ORDER BY dim), '') || '}/268435456')::sparsevec
  FROM weight
$$;

-- The lexemes of a query in one language; of a query of stop words alone, its words.
CREATE FUNCTION memory.query_lexemes(p_language text, p_query text) RETURNS text[]
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
  SELECT CASE WHEN cardinality(own) > 0 THEN own ELSE tsvector_to_array(to_tsvector('simple', p_query)) END
  FROM tsvector_to_array(to_tsvector(p_language::regconfig, p_query)) AS own
$$;

-- Which rows a caller may see and asked for, as SQL over `r`. Everything is spelt out (and quoted), so that
-- the planner sees one partition and real values. The tenant comes from the transaction alone.
CREATE FUNCTION memory.scope_predicate(p_scope jsonb) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
  predicate text;
BEGIN
  IF coalesce(tenant, '') = '' THEN
    RAISE EXCEPTION 'memory.tenant_id is not set in this transaction' USING ERRCODE = 'insufficient_privilege';
  END IF;
  predicate := format('r.tenant_id = %L AND r.generation = %L', tenant, p_scope ->> 'generation');
  IF p_scope ? 'allowed' THEN
    predicate := predicate || format(
      ' AND (r.owner_id = %L OR (r.access_tags && %L::text[] AND NOT r.access_tags && %L::text[]))',
      p_scope ->> 'principal',
      ARRAY(SELECT jsonb_array_elements_text(p_scope -> 'allowed')),
      ARRAY(SELECT jsonb_array_elements_text(coalesce(p_scope -> 'vetoed', '[]'))));
  ELSE
    predicate := predicate || format(' AND r.owner_id = %L', p_scope ->> 'principal');
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

-- Whether a phrase stands in `r`, as SQL: analysed here, once a language, and not anew for each row. A phrase that a
-- language has no words for (stop words alone) decides nothing: p_empty is its answer.
CREATE FUNCTION memory.phrase_predicate(p_languages text[], p_phrase text, p_empty boolean) RETURNS text
LANGUAGE sql STABLE
AS $$
  SELECT '(CASE r.language ' || coalesce(string_agg(format('WHEN %L THEN %s', l,
      CASE WHEN numnode(phraseto_tsquery(l::regconfig, p_phrase)) = 0 THEN p_empty::text
           ELSE format('r.fts @@ %L::tsquery', phraseto_tsquery(l::regconfig, p_phrase)::text) END), ' '), '')
    || format(' ELSE %s END)', p_empty::text)
  FROM unnest(p_languages) AS l
$$;

-- In how many rows each term stands: among those in scope when they are few, else by the tenant's statistics, or
-- (before they were first counted) by a bounded count.
CREATE FUNCTION memory.document_frequencies(
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
  ELSIF p_counted THEN
    -- One look-up a term: a join would read all of the tenant's terms.
    SELECT array_agg(coalesce((SELECT s.df FROM memory.term_stat s WHERE s.tenant_id = tenant
      AND s.generation = p_generation AND s.term = t.term), 0) ORDER BY t.i) INTO dfs
    FROM unnest(p_terms) WITH ORDINALITY AS t(term, i);
  ELSE
    EXECUTE format(
      'SELECT array_agg((SELECT count(*) FROM (SELECT FROM memory.search_row r WHERE r.tenant_id = %L '
      'AND r.terms @> ARRAY[t.term] LIMIT 50000) AS c) ORDER BY t.i) '
      'FROM unnest($1) WITH ORDINALITY AS t(term, i)', tenant) INTO dfs USING p_terms;
  END IF;
  RETURN dfs;
END $$;

-- Lexemes in scope that look like the query's unknown ones: typos, other spellings, a single character of a script
-- that is indexed in pairs. Asked only when the corpus knows less than half of the query (by idf), of its newest
-- rows only, and by trigrams only where pg_trgm is installed.
CREATE FUNCTION memory.similar_lexemes(
  p_predicate text, p_lexemes text[], p_dfs bigint[], p_rows bigint, p_most integer) RETURNS text[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  unknown text[];
  known_share float8;
  found text[];
BEGIN
  SELECT coalesce(sum(idf) FILTER (WHERE df > 0) / nullif(sum(idf), 0), 0),
         (array_agg(l ORDER BY i) FILTER (WHERE df = 0 AND l !~ '[0-9]'))[:8]
  INTO known_share, unknown
  FROM (SELECT l, df, i, ln(1 + (greatest(p_rows, df) - df + 0.5) / (df + 0.5)) AS idf
        FROM unnest(p_lexemes, p_dfs) WITH ORDINALITY AS t(l, df, i)) AS weight;
  IF unknown IS NULL OR known_share >= 0.5 THEN
    RETURN '{}';
  END IF;
  EXECUTE format(
    'WITH words AS MATERIALIZED ('
    ' SELECT DISTINCT w.lexeme FROM (SELECT r.fts FROM memory.search_row r WHERE %s ORDER BY r.chunk_id DESC LIMIT %s) '
    ' AS newest CROSS JOIN LATERAL unnest(tsvector_to_array(newest.fts)) AS w(lexeme)) '
    'SELECT array_agg(DISTINCT near.lexeme) FROM unnest($1) AS u(lexeme) CROSS JOIN LATERAL ('
    ' SELECT words.lexeme FROM words WHERE %s ORDER BY %s, words.lexeme LIMIT 3) AS near',
    p_predicate, p_most,
    CASE WHEN to_regprocedure('similarity(text, text)') IS NULL
         THEN 'length(u.lexeme) = 1 AND u.lexeme > ''~'' AND strpos(words.lexeme, u.lexeme) > 0'
         ELSE '(length(u.lexeme) = 1 AND u.lexeme > ''~'' AND strpos(words.lexeme, u.lexeme) > 0) '
              'OR (length(u.lexeme) >= 4 AND similarity(words.lexeme, u.lexeme) >= 0.33)' END,
    CASE WHEN to_regprocedure('similarity(text, text)') IS NULL THEN '1'
         ELSE 'similarity(words.lexeme, u.lexeme) DESC' END)
  INTO found USING unknown;
  RETURN coalesce(found, '{}');
END $$;

-- The caller's visible rows (up to p_small + 1) and the best p_limit of them by BM25.
-- Runs as the owner because GIN operators are not leakproof: under a policy they could not use their index.
-- So it takes its tenant from the transaction only, and nothing here may be reached without scope_predicate.
--   visible    rows in scope, counted up to p_small + 1
--   languages  configurations of the tenant's rows; queries and totals run parallel to it
--   queries    the query as idf per dimension; totals: the sum of its idf, unknown terms included
--   known      the known terms' share of that sum, in the language that knows most
CREATE FUNCTION memory.lexical_candidates(
  p_scope jsonb, p_query text, p_required text[], p_excluded text[], p_limit integer, p_small integer,
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
  EXECUTE format('SELECT count(*) FROM (SELECT FROM memory.search_row r WHERE %s LIMIT %s) AS v',
                 predicate, p_small + 1) INTO visible;

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

-- Dense candidates by a full look at what the caller sees: exact, and it knows how alike unrelated texts are.
CREATE FUNCTION memory.dense_exact(
  p_table text, p_vector text, p_predicate text, p_limit integer,
  OUT chunk_ids text[], OUT mean float8, OUT deviation float8, OUT vectors bigint)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  EXECUTE format(
    'WITH v AS MATERIALIZED (SELECT r.chunk_id, r.embedding <=> %s AS d FROM memory.%I r WHERE %s), '
    'top AS (SELECT chunk_id FROM v ORDER BY d, chunk_id LIMIT $1) '
    'SELECT (SELECT coalesce(array_agg(chunk_id), ''{}'') FROM top), avg(1 - d), stddev_pop(1 - d), count(*) FROM v',
    p_vector, p_table, p_predicate) INTO chunk_ids, mean, deviation, vectors USING p_limit;
END $$;

-- Dense candidates from the index. The planner is left no other way: it would choose wrongly for small shares.
CREATE FUNCTION memory.dense_nearest(
  p_table text, p_vector text, p_predicate text, p_limit integer, p_sample text[],
  OUT chunk_ids text[], OUT mean float8, OUT deviation float8, OUT vectors bigint)
LANGUAGE plpgsql STABLE
SET enable_sort = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
  PERFORM set_config('hnsw.ef_search', least(greatest(p_limit * 2, 100), 1000)::text, true),
          set_config('hnsw.iterative_scan', 'relaxed_order', true),
          set_config('hnsw.max_scan_tuples', '40000', true);
  EXECUTE format(
    'SELECT coalesce(array_agg(n.chunk_id ORDER BY n.d, n.chunk_id), ''{}'') FROM ('
    'SELECT r.chunk_id, r.embedding <=> %3$s AS d FROM memory.%1$I r WHERE %2$s '
    'ORDER BY r.embedding <=> %3$s LIMIT $1) AS n', p_table, p_predicate, p_vector)
  INTO chunk_ids USING p_limit;
  IF p_sample IS NULL THEN
    EXECUTE format('SELECT array_agg(f.chunk_id) FROM (SELECT r.chunk_id FROM memory.%I r WHERE r.tenant_id = %L '
                   'ORDER BY r.chunk_id LIMIT 64) AS f', p_table, current_setting('memory.tenant_id'))
    INTO p_sample;
  END IF;
  EXECUTE format(
    'SELECT avg(1 - (r.embedding <=> %s)), stddev_pop(1 - (r.embedding <=> %1$s)), count(*) '
    'FROM memory.%I r WHERE r.tenant_id = %L AND r.chunk_id = ANY ($1)',
    p_vector, p_table, current_setting('memory.tenant_id')) INTO mean, deviation, vectors USING p_sample;
END $$;

-- Both channels' candidates, their neighbours, and both scores of each, exact. One row a chunk.
--   p_vector   a quoted SQL expression of the query vector, or NULL: no dense channel
--   around     up to three visible neighbours before and after a candidate, each nearest first: 'a,b;c,d'. Of the
--              first two fifths of each channel: what stands further down is not lifted to the top by its neighbours
CREATE FUNCTION memory.retrieve(
  p_scope jsonb, p_query text, p_required text[], p_excluded text[], p_limit integer, p_small integer,
  p_table text, p_vector text, p_sample text[])
RETURNS TABLE (
  chunk_id text, document_id text, version_id text, ordinal integer, thread text, context_key text,
  occurred_at timestamptz, thread_seq bigint, author text, asks boolean, words integer, authority real,
  temporal_class text, valid_until timestamptz, bm25 float8, total float8, cosine float8,
  lexical boolean, dense boolean, around text,
  visible integer, known float8, mean float8, deviation float8, vectors bigint)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  lex record;
  den record;
  wanted text[];
  expanded text[];
  windows text[];
BEGIN
  SELECT * INTO lex FROM memory.lexical_candidates(p_scope, p_query, p_required, p_excluded, p_limit, p_small);
  IF lex.visible = 0 THEN
    RETURN;
  END IF;
  IF p_vector IS NULL THEN
    SELECT '{}'::text[] AS chunk_ids, NULL::float8 AS mean, NULL::float8 AS deviation, 0::bigint AS vectors INTO den;
  ELSIF lex.visible <= p_small THEN
    SELECT * INTO den FROM memory.dense_exact(p_table, p_vector, memory.scope_predicate(p_scope), p_limit);
  ELSE
    SELECT * INTO den
    FROM memory.dense_nearest(p_table, p_vector, memory.scope_predicate(p_scope), p_limit, p_sample);
  END IF;
  -- In two steps, with keys as arrays: of joins the planner expects thousands of rows, and then reads whole tables.
  EXECUTE format($sql$
    WITH base AS MATERIALIZED (
      SELECT r.chunk_id, r.context_key, r.occurred_at, r.thread_seq FROM memory.search_row r
      WHERE r.chunk_id = ANY ($1[:$3] || $2[:$3]) AND r.context_key IS NOT NULL AND %1$s
    ), around AS MATERIALIZED (
      SELECT b.chunk_id,
        ARRAY(
          SELECT r.chunk_id FROM memory.search_row r
          WHERE %2$s AND r.context_key = b.context_key
            AND (r.occurred_at, r.thread_seq, r.chunk_id) < (b.occurred_at, b.thread_seq, b.chunk_id)
          ORDER BY r.occurred_at DESC, r.thread_seq DESC, r.chunk_id DESC LIMIT 3) AS before,
        ARRAY(
          SELECT r.chunk_id FROM memory.search_row r
          WHERE %2$s AND r.context_key = b.context_key
            AND (r.occurred_at, r.thread_seq, r.chunk_id) > (b.occurred_at, b.thread_seq, b.chunk_id)
          ORDER BY r.occurred_at, r.thread_seq, r.chunk_id LIMIT 3) AS after
      FROM base b
    )
    SELECT coalesce(array_agg(chunk_id), '{}'),
      coalesce(array_agg(array_to_string(before, ',') || ';' || array_to_string(after, ',')), '{}'),
      ARRAY(SELECT unnest($1) UNION SELECT unnest($2) UNION SELECT unnest(before || after) FROM around)
    FROM around
    $sql$, lex.predicate, memory.scope_predicate(p_scope))
  INTO expanded, windows, wanted USING lex.chunk_ids, den.chunk_ids, greatest(20, p_limit * 2 / 5);
  RETURN QUERY EXECUTE format($sql$
    SELECT r.chunk_id::text, r.document_id::text, r.version_id::text, r.ordinal, r.thread::text, r.context_key::text,
      r.occurred_at, r.thread_seq, r.author, r.asks, r.words, r.authority, r.temporal_class, r.valid_until,
      coalesce(-(r.lex <#> %2$s), 0), coalesce(%3$s, 0), %4$s,
      r.chunk_id = ANY ($1), r.chunk_id = ANY ($2), w.around,
      $5, $6, $7, $8, $9
    FROM memory.search_row r
    LEFT JOIN unnest($11, $12) AS w(chunk_id, around) ON w.chunk_id = r.chunk_id
    WHERE r.chunk_id = ANY ($13) AND %1$s
    $sql$,
    lex.predicate,
    CASE WHEN cardinality(lex.queries) = 0 THEN '''{}/268435456''::sparsevec'
         WHEN cardinality(lex.queries) = 1 THEN '($3)[1]' ELSE '($3)[array_position($10, r.language)]' END,
    CASE WHEN cardinality(lex.queries) = 0 THEN '0::float8'
         WHEN cardinality(lex.queries) = 1 THEN '($4)[1]' ELSE '($4)[array_position($10, r.language)]' END,
    CASE WHEN p_vector IS NULL THEN 'NULL::float8' ELSE format(
      '(SELECT 1 - (e.embedding <=> %s) FROM memory.%I e WHERE e.tenant_id = %L AND e.chunk_id = r.chunk_id)',
      p_vector, p_table, current_setting('memory.tenant_id')) END)
  USING lex.chunk_ids, den.chunk_ids, lex.queries, lex.totals, lex.visible, lex.known,
    den.mean, den.deviation, den.vectors, lex.languages, expanded, windows, wanted;
END $$;

-- The compat profile's channels, each best first: every word must match, ts_rank decides.
-- Runs as the owner for the same reason as lexical_candidates.
CREATE FUNCTION memory.compat_lexical(
  p_scope jsonb, p_query text, p_language text, p_limit integer, p_small integer,
  OUT visible integer, OUT chunk_ids text[], OUT ranks real[])
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, memory, {{EXTENSION_SCHEMAS}}, pg_temp
AS $$
DECLARE
  predicate text := memory.scope_predicate(p_scope);
BEGIN
  EXECUTE format('SELECT count(*) FROM (SELECT FROM memory.search_row r WHERE %s LIMIT %s) AS v',
                 predicate, p_small + 1) INTO visible;
  EXECUTE format(
    'SELECT coalesce(array_agg(m.chunk_id ORDER BY m.rank DESC, m.occurred_at DESC, m.chunk_id), ''{}''), '
    'coalesce(array_agg(m.rank ORDER BY m.rank DESC, m.occurred_at DESC, m.chunk_id), ''{}'') FROM ('
    'SELECT r.chunk_id, r.occurred_at, CASE WHEN $1 = '''' THEN 0 ELSE ts_rank(c.text_fts, plainto_tsquery(%1$L, $1)) END '
    'AS rank FROM memory.search_row r JOIN memory.chunk c ON c.tenant_id = r.tenant_id AND c.id = r.chunk_id '
    'WHERE %2$s AND ($1 = '''' OR c.text_fts @@ plainto_tsquery(%1$L, $1)) '
    'ORDER BY rank DESC, r.occurred_at DESC, r.chunk_id LIMIT $2) AS m', p_language, predicate)
  INTO chunk_ids, ranks USING p_query, p_limit;
END $$;

CREATE FUNCTION memory.compat_candidates(
  p_scope jsonb, p_query text, p_language text, p_limit integer, p_small integer,
  p_table text, p_vector text, p_sample text[],
  OUT lexical text[], OUT ranks real[], OUT dense text[])
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  visible integer;
  den record;
BEGIN
  SELECT l.visible, l.chunk_ids, l.ranks INTO visible, lexical, ranks
  FROM memory.compat_lexical(p_scope, p_query, p_language, p_limit, p_small) AS l;
  dense := '{}';
  IF p_vector IS NULL OR visible = 0 THEN
    RETURN;
  ELSIF visible <= p_small THEN
    SELECT * INTO den FROM memory.dense_exact(p_table, p_vector, memory.scope_predicate(p_scope), p_limit);
  ELSE
    SELECT * INTO den
    FROM memory.dense_nearest(p_table, p_vector, memory.scope_predicate(p_scope), p_limit, p_sample);
  END IF;
  dense := den.chunk_ids;
END $$;
