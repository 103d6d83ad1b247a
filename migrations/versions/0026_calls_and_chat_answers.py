"""Runs may be a single tool call; answers of chats are found by the messages before them."""

from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE chat_answers (
            tenant text NOT NULL,
            hash text NOT NULL,
            run_id uuid NOT NULL,
            position bigint,
            created_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (tenant, hash))""")
    op.execute("CREATE INDEX chat_answers_of_run ON chat_answers (tenant, run_id)")
    op.execute("ALTER TABLE runs ADD COLUMN direct_call jsonb")
