-- Artifacts. `starling/infra/postgres/tables.py` describes them; a test compares both.

CREATE TABLE artifacts (
    tenant TEXT NOT NULL,
    hash TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    characters INTEGER NOT NULL,
    content TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT artifacts_pkey PRIMARY KEY (tenant, hash)
);

CREATE TABLE run_artifacts (
    tenant TEXT NOT NULL,
    run_id UUID NOT NULL,
    call_id TEXT NOT NULL,
    hash TEXT NOT NULL,
    name TEXT NOT NULL,
    media_type TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT run_artifacts_pkey PRIMARY KEY (tenant, run_id, call_id, hash),
    CONSTRAINT run_artifacts_tenant_hash_fkey FOREIGN KEY (tenant, hash) REFERENCES artifacts (tenant, hash)
);
CREATE INDEX run_artifacts_content ON run_artifacts (tenant, hash);

-- Succeeded runs, the majority, are not in this index.
CREATE INDEX runs_ended_badly ON runs (tenant, status, id)
    WHERE status IN ('failed', 'cancelled', 'budget_exhausted', 'parked');
