"""The tables of langgraph-checkpoint-postgres 3.2.0."""

from pathlib import Path

from alembic import op

revision = "0003"
down_revision = "0002"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0003_checkpoints_3_2_0.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
