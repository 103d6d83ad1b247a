-- Servers whose calls fail at once in a process, after failures in a row. Rows expire.

CREATE TABLE server_breakers (
    tenant TEXT NOT NULL,
    server TEXT NOT NULL,
    process TEXT NOT NULL,
    failures INTEGER NOT NULL,
    reason TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    retry_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT server_breakers_pkey PRIMARY KEY (tenant, server, process)
);
