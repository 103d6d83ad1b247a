-- Settings of single tools, by name, that win over the server's configuration; a reload of its file keeps them.
ALTER TABLE servers ADD COLUMN tool_settings JSONB DEFAULT '{}' NOT NULL;

-- The call whose result equal calls of the same principal get; it is replaced once it has failed or is too old.
CREATE TABLE call_claims (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    run_id UUID NOT NULL,
    call_key TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT call_claims_pkey PRIMARY KEY (tenant, key)
);
