"""The span of the request that a run belongs to, if its caller sent one."""

from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.execute("ALTER TABLE runs ADD COLUMN parent_span text")
