-- Grants and the version of a tenant's access.

-- name: begin_change
-- Takes the tenant's lock on changes of access, and raises its version with the change.
INSERT INTO memory.access_state AS s (tenant_id, version) VALUES (%(tenant)s, 1)
ON CONFLICT (tenant_id) DO UPDATE SET version = s.version + 1

-- name: version
-- How often a tenant's access has changed.
SELECT s.version FROM memory.access_state s WHERE s.tenant_id = %(tenant)s

-- name: collect
-- The unexpired grants of a principal and of every role that it holds, however roles lie in roles.
-- UNION keeps each role once: so a circle ends, and no depth is cut off that a deny could lie in.
WITH RECURSIVE held (role_id) AS (
  SELECT m.role_id FROM memory.role_member m
  WHERE m.tenant_id = %(tenant)s AND m.member_kind = 'principal' AND m.member_id = %(principal)s
  UNION
  SELECT m.role_id FROM held h
  JOIN memory.role_member m ON m.tenant_id = %(tenant)s AND m.member_role = h.role_id
)
SELECT g.id, g.tenant_id, g.principal_id, g.role_id, g.resource, g.action, g.effect, g.origin, g.conditions,
  g.expires_at, g.created_by
FROM memory."grant" g
WHERE g.tenant_id = %(tenant)s AND g.principal_id = %(principal)s AND (g.expires_at IS NULL OR g.expires_at > %(now)s)
UNION ALL
SELECT g.id, g.tenant_id, g.principal_id, g.role_id, g.resource, g.action, g.effect, g.origin, g.conditions,
  g.expires_at, g.created_by
FROM held h
JOIN memory."grant" g ON g.tenant_id = %(tenant)s AND g.role_id = h.role_id
WHERE g.expires_at IS NULL OR g.expires_at > %(now)s

-- name: put
-- Insert, or replace all of it.
INSERT INTO memory."grant" (tenant_id, id, principal_id, role_id, resource, action, effect, origin, conditions,
  expires_at, created_by)
VALUES (%(tenant)s, %(id)s, %(principal)s, %(role)s, %(resource)s, %(action)s, %(effect)s, %(origin)s,
  %(conditions)s, %(expires_at)s, %(created_by)s)
ON CONFLICT (tenant_id, id) DO UPDATE SET principal_id = excluded.principal_id, role_id = excluded.role_id,
  resource = excluded.resource, action = excluded.action, effect = excluded.effect, origin = excluded.origin,
  conditions = excluded.conditions, expires_at = excluded.expires_at, created_by = excluded.created_by,
  created_at = excluded.created_at

-- name: delete
-- One grant.
DELETE FROM memory."grant" g WHERE g.tenant_id = %(tenant)s AND g.id = %(id)s

-- name: delete_resource
-- All grants whose resource is exactly this.
DELETE FROM memory."grant" g WHERE g.tenant_id = %(tenant)s AND g.resource = %(resource)s

-- name: readers
-- Whom an unexpired grant on exactly this resource allows to search, by name or by a role, however roles lie in roles.
WITH RECURSIVE allowing AS (
  SELECT g.principal_id, g.role_id FROM memory."grant" g
  WHERE g.tenant_id = %(tenant)s AND g.resource = %(resource)s AND g.effect = 'allow'
    AND g.action IN ('search', '*') AND (g.expires_at IS NULL OR g.expires_at > %(now)s)
), held (role_id) AS (
  SELECT a.role_id FROM allowing a WHERE a.role_id IS NOT NULL
  UNION
  SELECT m.member_role FROM held h
  JOIN memory.role_member m ON m.tenant_id = %(tenant)s AND m.role_id = h.role_id AND m.member_role IS NOT NULL
)
SELECT a.principal_id AS principal FROM allowing a WHERE a.principal_id IS NOT NULL
UNION
SELECT m.member_id FROM held h
JOIN memory.role_member m ON m.tenant_id = %(tenant)s AND m.role_id = h.role_id AND m.member_kind = 'principal'
ORDER BY 1 LIMIT %(limit)s

-- name: list
-- A page of grants by id, the expired ones too.
SELECT g.id, g.tenant_id, g.principal_id, g.role_id, g.resource, g.action, g.effect, g.origin, g.conditions,
  g.expires_at, g.created_by
FROM memory."grant" g
WHERE g.tenant_id = %(tenant)s AND g.id > %(after)s
  AND (%(principal)s::text IS NULL OR g.principal_id = %(principal)s)
  AND (%(role)s::text IS NULL OR g.role_id = %(role)s)
  AND (%(resource)s::text IS NULL OR g.resource = %(resource)s)
ORDER BY g.id LIMIT %(limit)s
