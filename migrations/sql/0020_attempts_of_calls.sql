-- Which attempt at a task made a call, whether an admin set its tool's effect, and the call whose result it was given;
-- why an interrupt is asked.

ALTER TABLE ledger
    ADD COLUMN attempt INTEGER DEFAULT 1 NOT NULL,
    ADD COLUMN declared BOOLEAN DEFAULT false NOT NULL,
    ADD COLUMN reused_key TEXT;

ALTER TABLE interrupts ADD COLUMN code TEXT;
