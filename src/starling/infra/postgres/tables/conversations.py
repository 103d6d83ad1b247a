"""Conversations: threads, their branches and the states of a branch."""

from sqlalchemy import BigInteger, Boolean, Column, Double, ForeignKeyConstraint, LargeBinary, SmallInteger, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY, UUID

from starling.infra.postgres.tables.columns import metadata, moment_column, tenant_column

threads = Table(
    "threads",
    metadata,
    tenant_column(),
    Column("id", Text, primary_key=True),
    Column("branch", Text, nullable=False, server_default="main"),
    moment_column("created_at"),
)

branches = Table(
    "branches",
    metadata,
    tenant_column(),
    Column("thread_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("parent", Text),  # the branch this one was forked from; reserved for forks of threads, always NULL so far
    Column("fork_position", BigInteger),
    Column("tip", BigInteger, nullable=False, server_default="0"),  # the position of the newest state
    Column("arrivals", BigInteger, nullable=False, server_default="0"),  # runs accepted so far
    Column("clarifications", SmallInteger, nullable=False, server_default="0"),
    Column("last_agent", Text),
    Column("last_agents", ARRAY(Text)),  # those of the last turn's tasks
    moment_column("created_at"),
    ForeignKeyConstraint(["tenant", "thread_id"], ["threads.tenant", "threads.id"], ondelete="CASCADE"),
)

states = Table(
    "states",
    metadata,
    tenant_column(),
    Column("thread_id", Text, primary_key=True),
    Column("branch_id", Text, primary_key=True),
    Column("position", BigInteger, primary_key=True),
    Column("run_id", UUID(as_uuid=False)),
    Column("v", SmallInteger, nullable=False),
    Column("t", Text, nullable=False),
    Column("ts", Double, nullable=False),  # seconds since the epoch, as in the envelope
    Column("data", LargeBinary, nullable=False),  # JSON in UTF-8, zlib over it where compressed
    Column("compressed", Boolean, nullable=False),
    ForeignKeyConstraint(
        ["tenant", "thread_id", "branch_id"],
        ["branches.tenant", "branches.thread_id", "branches.id"],
        ondelete="CASCADE",
    ),
)
