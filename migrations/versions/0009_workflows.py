"""Teams: their versions as written, and the stars that were compiled of them."""

from pathlib import Path

from alembic import op

revision = "0009"
down_revision = "0008"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0009_workflows.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
