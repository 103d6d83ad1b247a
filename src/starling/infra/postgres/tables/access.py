"""Columns that tables share, and the tables of keys, kill switches and the audit trail."""

from sqlalchemy import Column, DateTime, Index, LargeBinary, MetaData, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB, UUID

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
    }
)


def tenant_column() -> Column[str]:
    """Return the first column of each primary key."""
    return Column("tenant", Text, primary_key=True)


def moment_column(name: str, *, nullable: bool = False) -> Column[object]:
    """Return a point in time with its zone: by default that of the insert, NULL where `nullable`."""
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=None if nullable else text("now()"))


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


switches = Table(  # kill switches
    "switches",
    metadata,
    tenant_column(),  # `*`: for all tenants
    Column("kind", Text, primary_key=True),  # tenant, agent or server
    Column("name", Text, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("actor", Text, nullable=False),
    moment_column("created_at"),
)

keys = Table(
    "keys",
    metadata,
    tenant_column(),
    Column("id", UUID(as_uuid=False), primary_key=True, unique=True),  # looked up before the tenant is known
    Column("name", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False),  # SHA-256 of the secret
    Column("scopes", JSONB, nullable=False),
    Column("grants", JSONB(none_as_null=True)),  # servers and tools; NULL: everything
    moment_column("created_at"),
    moment_column("expires_at", nullable=True),
    moment_column("revoked_at", nullable=True),
    moment_column("last_used_at", nullable=True),
)

console_sessions = Table(
    "console_sessions",
    metadata,
    tenant_column(),
    Column("hash", LargeBinary, primary_key=True, unique=True),  # SHA-256; looked up before the tenant is known
    Column("kind", Text, nullable=False),  # code, of a link that begins a session; or session
    Column("key_id", UUID(as_uuid=False)),  # NULL: an admin of the machine
    moment_column("created_at"),
    Column("expires_at", DateTime(timezone=True), nullable=False),
)
