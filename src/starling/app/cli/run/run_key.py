"""The run that a command names."""

from uuid import UUID

from starling.core.errors import InvalidRequestError
from starling.infra.postgres.runs.acceptance import RunKey


def parse_run_key(tenant: str, run: str) -> RunKey:
    """Return the key of a tenant's run. Raises InvalidRequestError."""
    try:
        return RunKey(tenant, str(UUID(run)))
    except ValueError:
        raise InvalidRequestError(f"{run!r} is not the id of a run.", "`starling run list` shows the ids.") from None
