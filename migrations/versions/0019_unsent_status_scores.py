"""Ended runs whose status is not at Langfuse yet."""

from pathlib import Path

from alembic import op

revision = "0019"
down_revision = "0018"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0019_unsent_status_scores.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
