-- Texts of prompts, by hash. Epochs pin them.

CREATE TABLE prompts (
    tenant TEXT NOT NULL,
    hash TEXT NOT NULL,
    name TEXT NOT NULL,
    text TEXT NOT NULL,
    source TEXT NOT NULL,
    version INTEGER,
    label TEXT,
    remote_name TEXT DEFAULT '' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    stored_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT prompts_pkey PRIMARY KEY (tenant, hash, name)
);
