-- Teams. `starling/infra/postgres/tables/registry.py` describes the tables.

CREATE TABLE workflows (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    spec JSONB NOT NULL,
    hash TEXT NOT NULL,
    state TEXT NOT NULL,
    created_by TEXT NOT NULL,
    creator_grant JSONB,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    star_hash TEXT,
    activated_by TEXT,
    activated_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT workflows_pkey PRIMARY KEY (tenant, name, version)
);

CREATE UNIQUE INDEX workflows_one_active ON workflows (tenant, name) WHERE state = 'active';

CREATE TABLE stars (
    tenant TEXT NOT NULL,
    hash TEXT NOT NULL,
    star JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT stars_pkey PRIMARY KEY (tenant, hash)
);
