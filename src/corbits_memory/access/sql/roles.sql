-- Roles, and who holds them.

-- name: put
-- Make a role, or change its description.
INSERT INTO memory.role (tenant_id, id, description, created_by)
VALUES (%(tenant)s, %(role)s, %(description)s, %(created_by)s)
ON CONFLICT (tenant_id, id) DO UPDATE SET description = excluded.description

-- name: delete
-- A role with its grants and memberships.
DELETE FROM memory.role r WHERE r.tenant_id = %(tenant)s AND r.id = %(role)s

-- name: list
-- A page of roles by id, with their direct members.
SELECT r.id, r.description,
  ARRAY(SELECT m.member_id FROM memory.role_member m WHERE m.tenant_id = r.tenant_id AND m.role_id = r.id
    AND m.member_kind = 'principal' ORDER BY m.member_id) AS principals,
  ARRAY(SELECT m.member_id FROM memory.role_member m WHERE m.tenant_id = r.tenant_id AND m.role_id = r.id
    AND m.member_kind = 'role' ORDER BY m.member_id) AS roles
FROM memory.role r
WHERE r.tenant_id = %(tenant)s AND r.id > %(after)s
ORDER BY r.id LIMIT %(limit)s

-- name: assign
-- Give a role to a principal, or to all who hold another role.
INSERT INTO memory.role_member (tenant_id, role_id, member_kind, member_id, created_by)
VALUES (%(tenant)s, %(role)s, %(kind)s, %(member)s, %(created_by)s)
ON CONFLICT DO NOTHING

-- name: unassign
-- Take it back.
DELETE FROM memory.role_member m
WHERE m.tenant_id = %(tenant)s AND m.role_id = %(role)s AND m.member_kind = %(kind)s AND m.member_id = %(member)s

-- name: nesting
-- What putting a role into another would make: a circle, or a chain of roles of this length.
WITH RECURSIVE above (role_id, depth) AS (
  SELECT %(role)s::text COLLATE "C", 1
  UNION
  SELECT m.role_id, a.depth + 1 FROM above a
  JOIN memory.role_member m ON m.tenant_id = %(tenant)s AND m.member_role = a.role_id
  WHERE a.depth <= %(most)s
), below (role_id, depth) AS (
  SELECT %(member)s::text COLLATE "C", 1
  UNION
  SELECT m.member_role, b.depth + 1 FROM below b
  JOIN memory.role_member m ON m.tenant_id = %(tenant)s AND m.role_id = b.role_id AND m.member_role IS NOT NULL
  WHERE b.depth <= %(most)s
)
SELECT EXISTS (SELECT FROM above a WHERE a.role_id = %(member)s),
  (SELECT max(a.depth) FROM above a) + (SELECT max(b.depth) FROM below b)
