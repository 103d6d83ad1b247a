"""Builds of teams: what runs are to build, and the proofs of versions."""

from pathlib import Path

from alembic import op

revision = "0010"
down_revision = "0009"

_SCRIPT = Path(__file__).parents[1] / "sql" / "0010_builds.sql"


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_SCRIPT.read_text(encoding="utf-8"), execution_options={"no_parameters": True})
