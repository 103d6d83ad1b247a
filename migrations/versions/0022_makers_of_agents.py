"""Makers of custom agents."""

from pathlib import Path

from alembic import op

revision = "0022"
down_revision = "0021"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0022_makers_of_agents.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
