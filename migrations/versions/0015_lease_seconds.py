"""How long the lease of a run was given for."""

from pathlib import Path

from alembic import op

revision = "0015"
down_revision = "0014"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0015_lease_seconds.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
