"""Starling's tables, and pgvector."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None

_SCRIPT = Path(__file__).parents[1] / "sql" / "0001_tables.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
