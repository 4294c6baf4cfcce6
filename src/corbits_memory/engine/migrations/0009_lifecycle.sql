-- Retention, erasure, audit.

-- What was erased, so that no replay makes it again. Ids and times only: neither the reference nor a hash of the
-- payload, by which short texts could be guessed.
CREATE TABLE memory.erasure (
  tenant_id       text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  id              text COLLATE "C" NOT NULL,
  kind            text NOT NULL CHECK (kind IN ('forget', 'purge')),
  document_id     text COLLATE "C" NOT NULL,
  -- NULL: a document of which there was none.
  raw_capture_id  text COLLATE "C",
  adapter         text COLLATE "C" NOT NULL,
  by_principal_id text COLLATE "C" NOT NULL,
  at              timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, id)
);
-- replay: may this raw capture be read?
CREATE INDEX erasure_raw_capture ON memory.erasure (tenant_id, raw_capture_id) WHERE raw_capture_id IS NOT NULL;
CREATE INDEX erasure_document ON memory.erasure (tenant_id, document_id);
ALTER TABLE memory.erasure ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON memory.erasure USING (tenant_id = current_setting('memory.tenant_id', true));

-- Who did what to which id, when, and what came of it. Words of ours and ids, never a user's text.
CREATE TABLE memory.audit_event (
  tenant_id   text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  id          text COLLATE "C" NOT NULL,
  at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor_id    text COLLATE "C" NOT NULL,
  action      text COLLATE "C" NOT NULL CHECK (action ~ '^[a-z][a-z_]{0,63}$'),
  target_type text COLLATE "C" NOT NULL CHECK (target_type ~ '^[a-z][a-z_]{0,63}$'),
  target_id   text COLLATE "C" NOT NULL,
  outcome     text COLLATE "C" NOT NULL CHECK (outcome ~ '^[a-z][a-z_]{0,63}$'),
  -- How many of what it was about: versions, grants.
  amount      bigint,
  PRIMARY KEY (tenant_id, id)
);
-- what happened to one thing
CREATE INDEX audit_event_target ON memory.audit_event (tenant_id, target_id, id);
ALTER TABLE memory.audit_event ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON memory.audit_event USING (tenant_id = current_setting('memory.tenant_id', true));

-- sweep: what may expire; a swept version leaves the index
DROP INDEX memory.version_ephemeral;
CREATE INDEX version_expiring ON memory.version (tenant_id, retention_class, id)
  WHERE status = 'active' AND retention_class IN ('ephemeral', 'source_only');

-- No planner statistics on what users write, wherever it stands: on a partitioned table those of the whole too, and
-- those of an index on an expression. Kinds, adapters and tags are labels and keep theirs.
ALTER TABLE memory.raw_capture ALTER external_ref SET STATISTICS 0, ALTER source_hash SET STATISTICS 0;
ALTER TABLE memory.document ALTER external_ref SET STATISTICS 0, ALTER thread SET STATISTICS 0;
ALTER TABLE memory.version ALTER thread SET STATISTICS 0, ALTER content_hash SET STATISTICS 0,
  ALTER generator_agent_id SET STATISTICS 0;
ALTER TABLE memory.search_row ALTER fts SET STATISTICS 0, ALTER terms SET STATISTICS 0, ALTER lex SET STATISTICS 0,
  ALTER author SET STATISTICS 0, ALTER attributes SET STATISTICS 0, ALTER thread SET STATISTICS 0,
  ALTER context_key SET STATISTICS 0;
ALTER TABLE memory.term_stat ALTER term SET STATISTICS 0;
ALTER TABLE memory.edge ALTER from_ref SET STATISTICS 0, ALTER to_ref SET STATISTICS 0;
ALTER TABLE memory.embed_queue ALTER error SET STATISTICS 0;
ALTER TABLE memory.transform_run ALTER error SET STATISTICS 0;
ALTER INDEX memory.entity_identifier ALTER 3 SET STATISTICS 0;
DO $$
DECLARE
  name text;
BEGIN
  FOR name IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'memory'::regnamespace AND c.relkind = 'p'
      AND c.relname LIKE 'embedding\_%' LOOP
    EXECUTE format('ALTER TABLE memory.%I ALTER embedding SET STATISTICS 0, ALTER attributes SET STATISTICS 0', name);
  END LOOP;
END $$;
