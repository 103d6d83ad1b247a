"""All tables, with the tenant first in each key. `migrations/` creates them; a test compares the two.

A module holds the tables of one subject. What a tenant defines (servers, agents, teams) is in `registry`. A new module
has to be imported here: migrations see only what this package imports.
"""

from starling.infra.postgres.tables import access, registry, run_records

__all__ = ["access", "registry", "run_records"]
