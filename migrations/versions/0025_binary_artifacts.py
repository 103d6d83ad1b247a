"""Artifacts may be binary."""

from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.execute("ALTER TABLE artifacts ADD COLUMN binary_content bytea")
