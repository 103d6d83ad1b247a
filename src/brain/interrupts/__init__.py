"""Questions, approvals, budgets and uncertain calls that suspend a run."""
