"""Servers that were added with `starling server add` have the source `host`: `api` is what came over HTTP."""

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.execute("UPDATE servers SET source = 'host' WHERE source = 'api'")
