-- Vectors of texts, and the agents of a branch's last turn. `starling/infra/postgres/tables.py` describes the table.

CREATE TABLE embeddings (
    tenant TEXT NOT NULL,
    model TEXT NOT NULL,
    hash TEXT NOT NULL,
    vector BYTEA NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT embeddings_pkey PRIMARY KEY (tenant, model, hash)
);

ALTER TABLE branches ADD COLUMN last_agents TEXT[];
