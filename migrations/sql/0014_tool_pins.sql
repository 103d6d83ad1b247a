-- What was approved of each tool, and what its server offers. Tools that are in use count as approved.

CREATE TABLE tool_pins (
    tenant TEXT NOT NULL,
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    approved_hash TEXT,
    offered_hash TEXT,
    state TEXT NOT NULL,
    reason TEXT DEFAULT '' NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    by TEXT DEFAULT '' NOT NULL,
    CONSTRAINT tool_pins_pkey PRIMARY KEY (tenant, server, tool)
);

INSERT INTO tool_pins (tenant, server, tool, approved_hash, offered_hash, state, seen_at, by)
SELECT servers.tenant, servers.name, pin.key, pin.value, pin.value, 'approved', servers.listed_at, 'migration'
FROM servers, jsonb_each_text(servers.tools) AS pin;
