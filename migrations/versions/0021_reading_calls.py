"""Calls of undeclared tools that only read, by their annotations."""

from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.execute("ALTER TABLE ledger ADD COLUMN reads BOOLEAN DEFAULT false NOT NULL")
