"""What a tenant defines, as written or as pinned: servers with tools, agents, teams; and the epochs that pin it."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB, UUID

from starling.infra.postgres.tables.access import metadata, moment_column, tenant_column

servers = Table(
    "servers",
    metadata,
    tenant_column(),
    Column("name", Text, primary_key=True),
    Column("config", JSONB, nullable=False),  # as written: variables and secrets unresolved
    Column("config_hash", Text, nullable=False),
    Column("source", Text, nullable=False),  # file, host or api
    Column("state", Text, nullable=False),  # ready or degraded
    Column("description", Text, nullable=False, server_default=""),
    Column("tools", JSONB, nullable=False, server_default="{}"),  # tool name -> definition hash
    Column("error", Text, nullable=False, server_default=""),
    Column("remedy", Text, nullable=False, server_default=""),
    Column("tool_settings", JSONB, nullable=False, server_default="{}"),  # tool name -> settings that win over config
    moment_column("listed_at"),
)

tools = Table(
    "tools",
    metadata,
    tenant_column(),
    Column("server", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("hash", Text, primary_key=True),
    Column("definition", JSONB, nullable=False),  # as the server listed it, whole
    moment_column("created_at"),
)

tool_pins = Table(
    "tool_pins",
    metadata,
    tenant_column(),
    Column("server", Text, primary_key=True),
    Column("tool", Text, primary_key=True),
    Column("approved_hash", Text),
    Column("offered_hash", Text),
    Column("state", Text, nullable=False),  # approved, quarantined or gone
    Column("reason", Text, nullable=False, server_default=""),
    moment_column("seen_at"),
    Column("by", Text, nullable=False, server_default=""),  # file, host, policy, or who approved it
)

server_breakers = Table(
    "server_breakers",
    metadata,
    tenant_column(),
    Column("server", Text, primary_key=True),
    Column("process", Text, primary_key=True),  # that makes no calls of the server now
    Column("failures", Integer, nullable=False),  # in a row
    Column("reason", Text, nullable=False),
    moment_column("since"),
    moment_column("retry_at"),
    moment_column("expires_at"),
)

configs = Table(
    "configs",
    metadata,
    tenant_column(),
    Column("hash", Text, primary_key=True),
    Column("config", JSONB, nullable=False),  # of a server, as epochs pin it: variables and secrets unresolved
    moment_column("created_at"),
)

agents = Table(
    "agents",
    metadata,
    tenant_column(),
    Column("name", Text, primary_key=True),
    Column("hash", Text, primary_key=True),
    Column("config", JSONB, nullable=False),  # of a custom agent, as pinned by epochs
    moment_column("created_at"),
)

workflows = Table(
    "workflows",
    metadata,
    tenant_column(),
    Column("name", Text, primary_key=True),  # of a team
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("spec", JSONB, nullable=False),  # as imported; spec, hash and creator are never updated
    Column("hash", Text, nullable=False),
    Column("state", Text, nullable=False),  # draft, proven, unproven, active, superseded or archived
    Column("created_by", Text, nullable=False),
    Column("creator_grant", JSONB(none_as_null=True)),  # what its creator's key could call: NULL for everything
    moment_column("created_at"),
    Column("star_hash", Text),  # of the star that its last activation compiled
    Column("activated_by", Text),
    moment_column("activated_at", nullable=True),
    Column("goal", Text),  # of a version that was built; NULL for an imported one
    Column("built_by", UUID(as_uuid=False)),  # the run that built it, in the task `built_at_path`
    Column("built_at_path", Text),
    Column("proof", JSONB(none_as_null=True)),  # the report of its last proof
    Column("proven_state", Text),  # what that proof came to: proven, unproven or failed
    Index(
        "workflows_one_build",
        "tenant",
        "built_by",
        "built_at_path",
        unique=True,
        postgresql_where=text("built_by IS NOT NULL"),
    ),
    Index("workflows_one_active", "tenant", "name", unique=True, postgresql_where=text("state = 'active'")),
)

stars = Table(
    "stars",
    metadata,
    tenant_column(),
    Column("hash", Text, primary_key=True),
    Column("star", JSONB, nullable=False),  # compiled from a version of a team, as pinned by epochs
    moment_column("created_at"),
)

prompts = Table(
    "prompts",
    metadata,
    tenant_column(),
    Column("hash", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("text", Text, nullable=False),  # instructions and data part; never updated
    Column("source", Text, nullable=False),  # langfuse or local; with the next three columns that of the last storing
    Column("version", Integer),
    Column("label", Text),
    Column("remote_name", Text, nullable=False, server_default=""),  # its name in Langfuse
    moment_column("created_at"),
    moment_column("stored_at"),  # when a source was last found to have this text
)

epochs = Table(
    "epochs",
    metadata,
    tenant_column(),
    Column("number", BigInteger, primary_key=True),
    Column("hash", Text, nullable=False),
    Column("manifest", JSONB, nullable=False),
    Column("changes", JSONB, nullable=False),  # against the epoch that was active before
    Column("actor", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("active", Boolean, nullable=False),
    moment_column("created_at"),
    moment_column("closed_at", nullable=True),  # set when no run uses it any more
    Index("epochs_one_active", "tenant", unique=True, postgresql_where=text("active")),
)
