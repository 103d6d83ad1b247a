"""Skills: tasks that were solved and approved, with what solved them."""

from pathlib import Path

from alembic import op

revision = "0008"
down_revision = "0007"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0008_skills.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
