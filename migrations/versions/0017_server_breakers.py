"""Servers whose calls fail at once, by process."""

from pathlib import Path

from alembic import op

revision = "0017"
down_revision = "0016"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0017_server_breakers.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
