"""Ledger, interrupts, idempotency keys, kill switches."""

from pathlib import Path

from alembic import op

revision = "0004"
down_revision = "0003"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0004_survival.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
