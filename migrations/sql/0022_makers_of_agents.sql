-- Who stored a configuration of a custom agent: a key's id, or local. Earlier rows take it from the audit trail.

ALTER TABLE agents ADD COLUMN created_by TEXT;

UPDATE agents SET created_by = found.actor
FROM (
    SELECT DISTINCT ON (tenant, target, detail ->> 'hash') tenant, target, detail ->> 'hash' AS hash, actor
    FROM audit WHERE action = 'agent.create' ORDER BY tenant, target, detail ->> 'hash', created_at DESC
) AS found
WHERE (agents.tenant, agents.name, agents.hash) = (found.tenant, found.target, found.hash);
