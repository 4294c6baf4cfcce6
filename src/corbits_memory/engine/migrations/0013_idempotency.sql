-- Adds that may be sent again under one key: what came of each, for a day. Ids and hashes, no content: the request's
-- hash is keyed by the caller's key, which is not kept itself, so that no short text can be guessed from it.
CREATE TABLE memory.idempotency_key (
  tenant_id    text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  principal_id text COLLATE "C" NOT NULL,
  key_hash     bytea NOT NULL,
  -- The document's place in the request; -1: a request of several as a whole.
  position     integer NOT NULL CHECK (position >= -1),
  request_hash bytea NOT NULL,
  -- NULL until the transaction that took the key has written the document, and for a request as a whole.
  document_id  text COLLATE "C",
  version_id   text COLLATE "C",
  version      integer,
  status       text,
  chunks       integer,
  created_at   timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, principal_id, key_hash, position)
);
-- sweep: what has expired, a tenant at a time
CREATE INDEX idempotency_key_age ON memory.idempotency_key (tenant_id, created_at);
ALTER TABLE memory.idempotency_key ALTER key_hash SET STATISTICS 0, ALTER request_hash SET STATISTICS 0;
ALTER TABLE memory.idempotency_key ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON memory.idempotency_key USING (tenant_id = current_setting('memory.tenant_id', true));
