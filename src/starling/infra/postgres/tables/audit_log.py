"""The audit log of administration, and the outbox of events for the context service."""

from sqlalchemy import Column, Index, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB, UUID

from starling.infra.postgres.tables.columns import metadata, moment_column, tenant_column

audit = Table(
    "audit",
    metadata,
    tenant_column(),
    Column("id", UUID(as_uuid=False), primary_key=True),
    Column("actor", Text, nullable=False),  # a key's id, or local
    Column("origin", Text, nullable=False),  # a client's address, or one of cli, start, file
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("detail", JSONB, nullable=False),
    moment_column("created_at"),
)

audit_events = Table(
    "audit_events",
    metadata,
    tenant_column(),
    Column("id", UUID(as_uuid=False), primary_key=True),
    Column("correlation_id", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("payload", JSONB, nullable=False),
    moment_column("created_at"),
    moment_column("due_at"),  # when it is to be delivered to the context service
    moment_column("delivered_at", nullable=True),
    Index("audit_events_due", "due_at", postgresql_where=text("delivered_at IS NULL")),
)
