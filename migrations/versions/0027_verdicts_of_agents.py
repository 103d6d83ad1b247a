"""Verdicts are counted by agent: those on tasks of a run's own plan, which events name since now."""

from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.execute("""
        CREATE INDEX events_verdicts ON events (tenant, (data ->> 'agent'), (data ->> 'status'))
        WHERE type = 'reflection' AND NOT data ->> 'path' LIKE '%/%'""")
