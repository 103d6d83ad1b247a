"""A row of states may have those of a whole run; branches may be hidden; runs may be forks of others."""

from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.execute("ALTER TABLE states ADD COLUMN length integer NOT NULL DEFAULT 1")
    op.execute("ALTER TABLE branches ADD COLUMN hidden boolean NOT NULL DEFAULT false")
    op.execute("ALTER TABLE runs ADD COLUMN forked_from jsonb")
