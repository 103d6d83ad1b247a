"""The tables of procrastinate 3.10.0."""

from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0002_procrastinate_3_10_0.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
