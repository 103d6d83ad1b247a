-- Ledger, interrupts, idempotency keys, kill switches. `starling/infra/postgres/tables.py` describes them; a test compares both.

ALTER TABLE runs ADD COLUMN trimmed BIGINT DEFAULT '0' NOT NULL;

CREATE TABLE idempotency_keys (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    run_id UUID NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant, key)
);

CREATE TABLE interrupts (
    tenant TEXT NOT NULL,
    id UUID NOT NULL,
    run_id UUID NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    response_schema JSONB NOT NULL,
    call JSONB,
    state TEXT DEFAULT 'open' NOT NULL,
    payload JSONB,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    answered_at TIMESTAMP WITH TIME ZONE,
    answered_by TEXT,
    CONSTRAINT interrupts_pkey PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX interrupts_key ON interrupts (tenant, run_id, key);
CREATE INDEX interrupts_open ON interrupts (expires_at) WHERE state = 'open';

CREATE TABLE ledger (
    tenant TEXT NOT NULL,
    run_id UUID NOT NULL,
    key TEXT NOT NULL,
    path TEXT NOT NULL,
    position INTEGER NOT NULL,
    index INTEGER NOT NULL,
    tool TEXT NOT NULL,
    effect TEXT NOT NULL,
    arguments JSONB NOT NULL,
    state TEXT NOT NULL,
    outcome JSONB,
    correlation_id TEXT NOT NULL,
    fence BIGINT DEFAULT '0' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    dispatched_at TIMESTAMP WITH TIME ZONE,
    settled_at TIMESTAMP WITH TIME ZONE,
    settled_by TEXT,
    CONSTRAINT ledger_pkey PRIMARY KEY (tenant, run_id, key)
);
CREATE INDEX ledger_in_doubt ON ledger (tenant) WHERE state = 'in_doubt';

CREATE TABLE switches (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    reason TEXT NOT NULL,
    actor TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT switches_pkey PRIMARY KEY (tenant, kind, name)
);
