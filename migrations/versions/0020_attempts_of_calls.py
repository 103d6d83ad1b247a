"""Attempts of calls, and codes of interrupts."""

from pathlib import Path

from alembic import op

revision = "0020"
down_revision = "0019"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0020_attempts_of_calls.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
