"""Settings of single tools, and which call of a principal an equal one gets its result from."""

from pathlib import Path

from alembic import op

revision = "0011"
down_revision = "0010"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0011_tool_settings.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
