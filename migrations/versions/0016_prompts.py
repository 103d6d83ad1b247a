"""Texts of prompts, by hash."""

from pathlib import Path

from alembic import op

revision = "0016"
down_revision = "0015"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0016_prompts.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
