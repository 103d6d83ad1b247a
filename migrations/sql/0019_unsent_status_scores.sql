-- Ended runs whose status is not at Langfuse yet. A row is deleted when it was sent; those that nobody sends expire.

CREATE TABLE unsent_status_scores (
    tenant TEXT NOT NULL,
    run_id UUID NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT unsent_status_scores_pkey PRIMARY KEY (tenant, run_id)
);

CREATE INDEX unsent_status_scores_due ON unsent_status_scores (due_at);
