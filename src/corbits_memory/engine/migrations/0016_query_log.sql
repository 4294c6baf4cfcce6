-- Some real questions, kept where an operator asks for it, to compare generations by: their words, and not whose.
CREATE TABLE memory.query_log (
  tenant_id text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  id        text COLLATE "C" NOT NULL,
  query     text NOT NULL,
  asked_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, id)
);
-- sweep: what is old, a tenant at a time
CREATE INDEX query_log_age ON memory.query_log (tenant_id, asked_at);
ALTER TABLE memory.query_log ALTER query SET STATISTICS 0;
ALTER TABLE memory.query_log ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON memory.query_log USING (tenant_id = current_setting('memory.tenant_id', true));
