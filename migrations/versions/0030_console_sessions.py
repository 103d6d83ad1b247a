"""Sessions of the console, and the codes of links that begin them: of both only the hash is stored."""

from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE console_sessions (
            tenant text NOT NULL,
            hash bytea NOT NULL UNIQUE,
            kind text NOT NULL,
            key_id uuid,
            created_at timestamptz NOT NULL DEFAULT now(),
            expires_at timestamptz NOT NULL,
            PRIMARY KEY (tenant, hash))""")
