"""What a tenant defines, as written or as pinned: servers with tools, agents, teams; and the epochs that pin it.

Also skills, and the vectors of texts that are embedded again.
"""

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB, TSVECTOR, UUID

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
    Column("created_by", Text),  # a key's id, or local; null where an earlier version stored it
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
    Column("proven_state", Text),  # the outcome of that proof: proven, unproven or failed
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


embeddings = Table(  # vectors of texts that come again, such as descriptions of tools
    "embeddings",
    metadata,
    tenant_column(),  # `*`: of texts that every tenant sees
    Column("model", Text, primary_key=True),  # `static` or provider:model
    Column("hash", Text, primary_key=True),  # of the text
    Column("vector", LargeBinary, nullable=False),  # 16-bit floats, little-endian
    moment_column("created_at"),
)

skills = Table(
    "skills",
    metadata,
    tenant_column(),
    Column("id", UUID(as_uuid=False), primary_key=True),
    Column("merged_into", UUID(as_uuid=False)),  # of an example of another skill: it is only compared with new tasks
    Column("state", Text, nullable=False, server_default="active"),
    Column("reason", Text, nullable=False, server_default=""),  # why it isn't active
    Column("task", Text, nullable=False),
    Column("template", Text, nullable=False),  # the task with a {slot} where a value stood
    Column("calls", JSONB, nullable=False),  # [{tool, arguments}], each value a constant or {slot, from, example}
    Column("code", Text, nullable=False, server_default=""),
    Column("outcome", Text, nullable=False),  # the beginning of the approved result
    Column("tools", JSONB, nullable=False),  # {tool: hash of its definition}
    Column("shape", Text, nullable=False),  # digest of the calls without the examples of slots
    Column("agent_kind", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("provenance", Text, nullable=False),  # run, admin or import
    Column("source_run", UUID(as_uuid=False)),
    Column("source_path", Text),
    Column("shared_by", Text),  # the key or command that imported it from another tenant
    Column("model", Text),  # that made the vector
    Column("embedding", HALFVEC),  # of the task, with as many dimensions as the model has
    Column("words", TSVECTOR, nullable=False),
    Column("uses", Integer, nullable=False, server_default="0"),  # tasks whose prompt had it
    Column("successes", Integer, nullable=False, server_default="0"),  # of these, approved after its calls
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("consecutive_failures", Integer, nullable=False, server_default="0"),
    moment_column("last_used_at", nullable=True),
    moment_column("created_at"),
    Index(
        "skills_source",
        "tenant",
        "source_run",
        "source_path",
        unique=True,
        postgresql_where=text("source_run IS NOT NULL"),
    ),
    Index("skills_shape", "tenant", "shape"),
    Index(
        "skills_calls",
        "tenant",
        "shape",
        text("md5(tools::text)"),
        unique=True,
        postgresql_where=text("merged_into IS NULL AND state IN ('active', 'suspended')"),
    ),
    Index("skills_merged", "tenant", "merged_into", postgresql_where=text("merged_into IS NOT NULL")),
    Index("skills_words", "words", postgresql_using="gin"),
)
