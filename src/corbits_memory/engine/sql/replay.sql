-- Replays. A generation is written beside the live one, by the ids of raw captures, and a pointer moves.

-- name: live_generation
-- Where `live` points now.
SELECT live_generation FROM memory.tenant_state WHERE tenant_id = %(tenant)s

-- name: settings
-- What the run was made by whose generation this is.
SELECT r.config_id, r.model_key, r.pinned, c.params
FROM memory.transform_run r
JOIN memory.transform_config c ON c.tenant_id = %(tenant)s AND c.id = r.config_id
WHERE r.tenant_id = %(tenant)s AND r.generation = %(generation)s

-- name: secrets
-- The keys of a config. Read as the owner: the policy lets nobody else.
SELECT field, secret FROM memory.transform_secret WHERE tenant_id = %(tenant)s AND config_id = %(config)s

-- name: model_sources
-- How a registered model can be reached: by the configs whose runs it served, newest first, then by its own row.
-- Read as the owner.
SELECT * FROM (
  SELECT c.id AS config_id, c.params, s.secret, m.base_url, m.model_id, m.api_style
  FROM memory.embed_model m
  JOIN memory.transform_run r ON r.tenant_id = m.tenant_id AND r.model_key = m.model_key AND r.pinned
  JOIN memory.transform_config c ON c.tenant_id = m.tenant_id AND c.id = r.config_id
  LEFT JOIN memory.transform_secret s ON s.tenant_id = m.tenant_id AND s.config_id = c.id AND s.field = 'embed.apiKey'
  WHERE m.tenant_id = %(tenant)s AND m.model_key = %(model_key)s
  ORDER BY r.id DESC LIMIT 3
) AS of_configs
UNION ALL
SELECT NULL, NULL, NULL, m.base_url, m.model_id, m.api_style FROM memory.embed_model m
WHERE m.tenant_id = %(tenant)s AND m.model_key = %(model_key)s

-- name: generation_model
-- Whose vectors a generation has.
SELECT model_key FROM memory.generation WHERE tenant_id = %(tenant)s AND id = %(generation)s
