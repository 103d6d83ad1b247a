"""Artifacts, and an index for lists of runs that did not succeed."""

from pathlib import Path

from alembic import op

revision = "0005"
down_revision = "0004"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0005_artifacts.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
