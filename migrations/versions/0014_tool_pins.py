"""Pins of tools: what was approved and what is offered."""

from pathlib import Path

from alembic import op

revision = "0014"
down_revision = "0013"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0014_tool_pins.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
