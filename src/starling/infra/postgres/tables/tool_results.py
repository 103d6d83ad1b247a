"""Tool results that are too long for a model, and the runs that refer to them."""

from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Index, Integer, Table, Text
from sqlalchemy.dialects.postgresql import UUID

from starling.infra.postgres.tables.columns import metadata, moment_column, tenant_column

artifacts = Table(  # tool results that are too long for a model
    "artifacts",
    metadata,
    tenant_column(),
    Column("hash", Text, primary_key=True),  # SHA-256 of the content in UTF-8
    Column("bytes", BigInteger, nullable=False),  # of the content in UTF-8, for the quota
    Column("characters", Integer, nullable=False),
    Column("content", Text, nullable=False),
    moment_column("created_at"),
)

run_artifacts = Table(  # references to contents; a content without references is deleted
    "run_artifacts",
    metadata,
    tenant_column(),
    Column("run_id", UUID(as_uuid=False), primary_key=True),
    Column("call_id", Text, primary_key=True),
    Column("hash", Text, primary_key=True),
    Column("name", Text, nullable=False),  # of the tool, in full
    Column("media_type", Text, nullable=False),
    moment_column("created_at"),
    ForeignKeyConstraint(["tenant", "hash"], ["artifacts.tenant", "artifacts.hash"]),
    Index("run_artifacts_content", "tenant", "hash"),
)
