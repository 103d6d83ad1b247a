"""Runs that are executed alone in a process."""

from pathlib import Path

from alembic import op

revision = "0013"
down_revision = "0012"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0013_isolated_runs.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
