"""All tables, with the tenant first in each key. `migrations/` creates them; a test compares the two.

A module holds the tables of one subject. What a tenant defines (servers, agents, teams) is in `registry`. A new module
has to be imported here: migrations see only what this package imports.
"""

from starling.infra.postgres.tables.access import audit, audit_events, keys, metadata, switches
from starling.infra.postgres.tables.registry import (
    agents,
    configs,
    embeddings,
    epochs,
    prompts,
    server_breakers,
    servers,
    skills,
    stars,
    tool_pins,
    tools,
    workflows,
)
from starling.infra.postgres.tables.run_records import (
    artifacts,
    branches,
    call_claims,
    events,
    feedback,
    idempotency_keys,
    interrupts,
    journal,
    ledger,
    run_artifacts,
    runs,
    states,
    steps,
    threads,
    unsent_status_scores,
)

__all__ = [
    "agents",
    "artifacts",
    "audit",
    "audit_events",
    "branches",
    "call_claims",
    "configs",
    "embeddings",
    "epochs",
    "events",
    "feedback",
    "idempotency_keys",
    "interrupts",
    "journal",
    "keys",
    "ledger",
    "metadata",
    "prompts",
    "run_artifacts",
    "runs",
    "server_breakers",
    "servers",
    "skills",
    "stars",
    "states",
    "steps",
    "switches",
    "threads",
    "tool_pins",
    "tools",
    "unsent_status_scores",
    "workflows",
]
