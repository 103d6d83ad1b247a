-- The idempotency key that the server of a call was sent, which repeats of an idempotent call share; NULL: the row's own
-- key. `ledger.state` has no constraint: a new state, `unusable`, needs no change of the table.

ALTER TABLE ledger ADD COLUMN idempotency_key TEXT;
