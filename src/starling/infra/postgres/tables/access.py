"""Who may do what: API keys and kill switches."""

from sqlalchemy import Column, LargeBinary, Table, Text
from sqlalchemy.dialects.postgresql import JSONB, UUID

from starling.infra.postgres.tables.columns import metadata, moment_column, tenant_column

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
