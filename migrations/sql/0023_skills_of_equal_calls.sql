-- Skills in use that have the same calls of the same tools become one: the oldest gets the others' tasks as further ones.

UPDATE skills SET merged_into = found.kept
FROM (
    SELECT tenant, id, first_value(id) OVER (PARTITION BY tenant, shape, tools ORDER BY id) AS kept
    FROM skills WHERE merged_into IS NULL AND state IN ('active', 'suspended')
) AS found
WHERE found.id <> found.kept AND skills.tenant = found.tenant
    AND (skills.id = found.id OR skills.merged_into = found.id);

CREATE UNIQUE INDEX skills_calls ON skills (tenant, shape, md5(tools::text))
WHERE merged_into IS NULL AND state IN ('active', 'suspended');
