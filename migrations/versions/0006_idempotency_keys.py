"""Idempotency keys that repeats of a call share."""

from pathlib import Path

from alembic import op

revision = "0006"
down_revision = "0005"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0006_idempotency_keys.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
