-- Who may: grants, the roles that hold some, and a number a tenant that rises with each change of either.

-- One row a tenant, locked by every change as its first step: changes of a tenant come one after the other, so that
-- two of them can't close a circle of roles together.
CREATE TABLE memory.access_state (
  tenant_id text COLLATE "C" PRIMARY KEY CHECK (tenant_id <> ''),
  version   bigint NOT NULL
);

CREATE TABLE memory.role (
  tenant_id   text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  id          text COLLATE "C" NOT NULL CHECK (id <> ''),
  description text,
  created_by  text COLLATE "C",
  created_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, id)
);

-- Who holds a role: principals, and all who hold another role.
CREATE TABLE memory.role_member (
  tenant_id   text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  role_id     text COLLATE "C" NOT NULL,
  member_kind text NOT NULL CHECK (member_kind IN ('principal', 'role')),
  member_id   text COLLATE "C" NOT NULL CHECK (member_id <> ''),
  -- Only to be referred to another role by.
  member_role text COLLATE "C" GENERATED ALWAYS AS (CASE WHEN member_kind = 'role' THEN member_id END) STORED,
  created_by  text COLLATE "C",
  created_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, role_id, member_kind, member_id),
  FOREIGN KEY (tenant_id, role_id) REFERENCES memory.role (tenant_id, id) ON DELETE CASCADE,
  FOREIGN KEY (tenant_id, member_role) REFERENCES memory.role (tenant_id, id) ON DELETE CASCADE,
  CHECK (member_kind <> 'role' OR member_id <> role_id)
);
-- each request: the roles that a principal holds, and those that hold a role
CREATE INDEX role_member_principal ON memory.role_member (tenant_id, member_id) WHERE member_kind = 'principal';
CREATE INDEX role_member_role ON memory.role_member (tenant_id, member_role) WHERE member_role IS NOT NULL;

CREATE TABLE memory."grant" (
  tenant_id    text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  id           text COLLATE "C" NOT NULL CHECK (id <> ''),
  principal_id text COLLATE "C" CHECK (principal_id <> ''),
  role_id      text COLLATE "C",
  resource     text COLLATE "C" NOT NULL CHECK (resource <> ''),
  action       text COLLATE "C" NOT NULL CHECK (action <> ''),
  effect       text NOT NULL CHECK (effect IN ('allow', 'ask', 'deny')),
  origin       text NOT NULL CHECK (origin IN ('system', 'role', 'creator', 'invoker')),
  conditions   jsonb CHECK (jsonb_typeof(conditions) = 'object'),
  expires_at   timestamptz,
  created_by   text COLLATE "C",
  created_at   timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, role_id) REFERENCES memory.role (tenant_id, id) ON DELETE CASCADE,
  CHECK (num_nonnulls(principal_id, role_id) = 1)
);
-- each request: what a principal holds itself, and by its roles; then a list's filters, in the order of their pages
CREATE INDEX grant_principal ON memory."grant" (tenant_id, principal_id, id) WHERE principal_id IS NOT NULL;
CREATE INDEX grant_role ON memory."grant" (tenant_id, role_id, id) WHERE role_id IS NOT NULL;
-- purge: the grants on a document
CREATE INDEX grant_resource ON memory."grant" (tenant_id, resource, id);

DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['access_state', 'role', 'role_member', 'grant'] LOOP
    EXECUTE format('ALTER TABLE memory.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY tenant ON memory.%I USING (tenant_id = current_setting(''memory.tenant_id'', true))',
                   name);
  END LOOP;
END $$;
