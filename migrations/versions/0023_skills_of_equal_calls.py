"""Skills in use that have the same calls are one."""

from pathlib import Path

from alembic import op

revision = "0023"
down_revision = "0022"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0023_skills_of_equal_calls.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
