"""Makers of custom agents."""

from pathlib import Path

from alembic import op

revision = "0021"
down_revision = "0020"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0021_makers_of_agents.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
