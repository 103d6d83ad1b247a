-- Skills. `starling/infra/postgres/tables.py` describes the table. The index over the vectors of a model is made once a
-- tenant has too many skills to compare each: before that it would only make writes slower.

CREATE TABLE skills (
    tenant TEXT NOT NULL,
    id UUID NOT NULL,
    merged_into UUID,
    state TEXT DEFAULT 'active' NOT NULL,
    reason TEXT DEFAULT '' NOT NULL,
    task TEXT NOT NULL,
    template TEXT NOT NULL,
    calls JSONB NOT NULL,
    code TEXT DEFAULT '' NOT NULL,
    outcome TEXT NOT NULL,
    tools JSONB NOT NULL,
    shape TEXT NOT NULL,
    agent_kind TEXT NOT NULL,
    agent TEXT NOT NULL,
    provenance TEXT NOT NULL,
    source_run UUID,
    source_path TEXT,
    shared_by TEXT,
    model TEXT,
    embedding HALFVEC,
    words TSVECTOR NOT NULL,
    uses INTEGER DEFAULT 0 NOT NULL,
    successes INTEGER DEFAULT 0 NOT NULL,
    failures INTEGER DEFAULT 0 NOT NULL,
    consecutive_failures INTEGER DEFAULT 0 NOT NULL,
    last_used_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT skills_pkey PRIMARY KEY (tenant, id)
);

CREATE UNIQUE INDEX skills_source ON skills (tenant, source_run, source_path) WHERE source_run IS NOT NULL;

CREATE INDEX skills_shape ON skills (tenant, shape);

CREATE INDEX skills_merged ON skills (tenant, merged_into) WHERE merged_into IS NOT NULL;

CREATE INDEX skills_words ON skills USING gin (words);
