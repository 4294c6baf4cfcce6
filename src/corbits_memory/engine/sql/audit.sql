-- Who did what.

-- name: record
-- In the transaction of what was done, so that neither is kept without the other.
INSERT INTO memory.audit_event (tenant_id, id, actor_id, action, target_type, target_id, outcome, amount)
VALUES (%(tenant)s, %(id)s, %(actor)s, %(action)s, %(target_type)s, %(target)s, %(outcome)s, %(amount)s)

-- name: page
-- Newest first; one more than asked for says that there is more.
SELECT e.id, e.at, e.actor_id, e.action, e.target_type, e.target_id, e.outcome, e.amount
FROM memory.audit_event e
WHERE e.tenant_id = %(tenant)s AND (%(before)s::text IS NULL OR e.id < %(before)s)
  AND (%(target)s::text IS NULL OR e.target_id = %(target)s)
ORDER BY e.id DESC LIMIT %(limit)s + 1
