"""The time limit of a call is kept once it was sent: until then it may be going on."""

from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    op.execute("ALTER TABLE ledger ADD COLUMN seconds double precision")
