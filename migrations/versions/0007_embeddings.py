"""Vectors of texts, and the agents of a branch's last turn."""

from pathlib import Path

from alembic import op

revision = "0007"
down_revision = "0006"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0007_embeddings.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
