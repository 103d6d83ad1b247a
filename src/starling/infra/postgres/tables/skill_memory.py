"""Skills, and the vectors of texts that are embedded again."""

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import Column, Index, Integer, LargeBinary, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB, TSVECTOR, UUID

from starling.infra.postgres.tables.access import metadata, moment_column, tenant_column

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
    Index("skills_merged", "tenant", "merged_into", postgresql_where=text("merged_into IS NOT NULL")),
    Index("skills_words", "words", postgresql_using="gin"),
)
