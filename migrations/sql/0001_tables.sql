-- The tables of revision 0001. `starling/infra/postgres/tables.py` describes them; a test compares both.

CREATE EXTENSION IF NOT EXISTS vector;

CREATE TABLE agents (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    hash TEXT NOT NULL,
    config JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT agents_pkey PRIMARY KEY (tenant, name, hash)
);

CREATE TABLE audit (
    tenant TEXT NOT NULL,
    id UUID NOT NULL,
    actor TEXT NOT NULL,
    origin TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    detail JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT audit_pkey PRIMARY KEY (tenant, id)
);

CREATE TABLE audit_events (
    tenant TEXT NOT NULL,
    id UUID NOT NULL,
    correlation_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    source TEXT NOT NULL,
    payload JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    delivered_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT audit_events_pkey PRIMARY KEY (tenant, id)
);
CREATE INDEX audit_events_due ON audit_events (due_at) WHERE delivered_at IS NULL;

CREATE TABLE configs (
    tenant TEXT NOT NULL,
    hash TEXT NOT NULL,
    config JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT configs_pkey PRIMARY KEY (tenant, hash)
);

CREATE TABLE epochs (
    tenant TEXT NOT NULL,
    number BIGINT NOT NULL,
    hash TEXT NOT NULL,
    manifest JSONB NOT NULL,
    changes JSONB NOT NULL,
    actor TEXT NOT NULL,
    origin TEXT NOT NULL,
    active BOOLEAN NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT epochs_pkey PRIMARY KEY (tenant, number)
);
CREATE UNIQUE INDEX epochs_one_active ON epochs (tenant) WHERE active;

CREATE TABLE events (
    tenant TEXT NOT NULL,
    run_id UUID NOT NULL,
    seq BIGINT NOT NULL,
    type TEXT NOT NULL,
    data JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT events_pkey PRIMARY KEY (tenant, run_id, seq)
);

CREATE TABLE journal (
    tenant TEXT NOT NULL,
    run_id UUID NOT NULL,
    path TEXT NOT NULL,
    kind TEXT NOT NULL,
    position INTEGER NOT NULL,
    index INTEGER NOT NULL,
    request_hash TEXT NOT NULL,
    data JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT journal_pkey PRIMARY KEY (tenant, run_id, path, kind, position, index)
);

CREATE TABLE keys (
    tenant TEXT NOT NULL,
    id UUID NOT NULL,
    name TEXT NOT NULL,
    hash BYTEA NOT NULL,
    scopes JSONB NOT NULL,
    grants JSONB,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    revoked_at TIMESTAMP WITH TIME ZONE,
    last_used_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT keys_pkey PRIMARY KEY (tenant, id),
    CONSTRAINT keys_id_key UNIQUE (id)
);

CREATE TABLE servers (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    config JSONB NOT NULL,
    config_hash TEXT NOT NULL,
    source TEXT NOT NULL,
    state TEXT NOT NULL,
    description TEXT DEFAULT '' NOT NULL,
    tools JSONB DEFAULT '{}' NOT NULL,
    error TEXT DEFAULT '' NOT NULL,
    remedy TEXT DEFAULT '' NOT NULL,
    listed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT servers_pkey PRIMARY KEY (tenant, name)
);

CREATE TABLE steps (
    tenant TEXT NOT NULL,
    run_id UUID NOT NULL,
    id UUID NOT NULL,
    type TEXT NOT NULL,
    description TEXT NOT NULL,
    metadata JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT steps_pkey PRIMARY KEY (tenant, run_id, id)
);

CREATE TABLE threads (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    branch TEXT DEFAULT 'main' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT threads_pkey PRIMARY KEY (tenant, id)
);

CREATE TABLE tools (
    tenant TEXT NOT NULL,
    server TEXT NOT NULL,
    name TEXT NOT NULL,
    hash TEXT NOT NULL,
    definition JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT tools_pkey PRIMARY KEY (tenant, server, name, hash)
);

CREATE TABLE branches (
    tenant TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    id TEXT NOT NULL,
    parent TEXT,
    fork_position BIGINT,
    tip BIGINT DEFAULT '0' NOT NULL,
    arrivals BIGINT DEFAULT '0' NOT NULL,
    clarifications SMALLINT DEFAULT '0' NOT NULL,
    last_agent TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT branches_pkey PRIMARY KEY (tenant, thread_id, id),
    CONSTRAINT branches_tenant_thread_id_fkey FOREIGN KEY(tenant, thread_id) REFERENCES threads (tenant, id) ON DELETE CASCADE
);

CREATE TABLE runs (
    tenant TEXT NOT NULL,
    id UUID NOT NULL,
    thread_id TEXT NOT NULL,
    branch_id TEXT NOT NULL,
    arrival BIGINT NOT NULL,
    status TEXT DEFAULT 'queued' NOT NULL,
    epoch BIGINT NOT NULL,
    graph_version INTEGER NOT NULL,
    input TEXT NOT NULL,
    config JSONB NOT NULL,
    principal JSONB NOT NULL,
    correlation_id TEXT NOT NULL,
    trace_id TEXT NOT NULL,
    seq BIGINT DEFAULT '0' NOT NULL,
    fence BIGINT DEFAULT '0' NOT NULL,
    flushes BIGINT DEFAULT '0' NOT NULL,
    worker TEXT,
    lease_until TIMESTAMP WITH TIME ZONE,
    crashes SMALLINT DEFAULT '0' NOT NULL,
    cancel_requested BOOLEAN DEFAULT 'false' NOT NULL,
    admitted_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    deadline TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE,
    result JSONB,
    CONSTRAINT runs_pkey PRIMARY KEY (tenant, id),
    CONSTRAINT runs_tenant_thread_id_branch_id_fkey FOREIGN KEY(tenant, thread_id, branch_id) REFERENCES branches (tenant, thread_id, id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX runs_line ON runs (tenant, thread_id, branch_id, arrival);
CREATE UNIQUE INDEX runs_one_active_per_branch ON runs (tenant, thread_id, branch_id) WHERE status IN ('running', 'waiting');
CREATE INDEX runs_unfinished ON runs (tenant, status) WHERE ended_at IS NULL;

CREATE TABLE states (
    tenant TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    branch_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    run_id UUID,
    v SMALLINT NOT NULL,
    t TEXT NOT NULL,
    ts DOUBLE PRECISION NOT NULL,
    data BYTEA NOT NULL,
    compressed BOOLEAN NOT NULL,
    CONSTRAINT states_pkey PRIMARY KEY (tenant, thread_id, branch_id, position),
    CONSTRAINT states_tenant_thread_id_branch_id_fkey FOREIGN KEY(tenant, thread_id, branch_id) REFERENCES branches (tenant, thread_id, id) ON DELETE CASCADE
);
