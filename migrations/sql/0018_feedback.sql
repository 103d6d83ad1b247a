-- What people and programs say of a run; `due_at` and `sent_at` are of its delivery to Langfuse.

CREATE TABLE feedback (
    tenant TEXT NOT NULL,
    run_id UUID NOT NULL,
    principal TEXT NOT NULL,
    score DOUBLE PRECISION NOT NULL,
    comment TEXT DEFAULT '' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    sent_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT feedback_pkey PRIMARY KEY (tenant, run_id, principal)
);

CREATE INDEX feedback_unsent ON feedback (due_at) WHERE sent_at IS NULL;
