-- Who may talk to the reference host. Beside the memory's own schema: a host that mounts the memory has its own.
CREATE TABLE memory_host.token (
  id           text COLLATE "C" PRIMARY KEY,
  tenant_id    text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  principal_id text COLLATE "C" NOT NULL CHECK (principal_id <> ''),
  capabilities text[] NOT NULL CHECK (cardinality(capabilities) > 0),
  token_hash   bytea NOT NULL UNIQUE CHECK (octet_length(token_hash) = 32),
  prefix       text NOT NULL,
  label        text,
  created_at   timestamptz NOT NULL DEFAULT now(),
  expires_at   timestamptz,
  revoked_at   timestamptz,
  last_used_at timestamptz
);
CREATE INDEX token_by_tenant ON memory_host.token (tenant_id, created_at, id);
