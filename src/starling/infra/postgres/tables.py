"""All tables, with the tenant first in each key. `migrations/` creates them; a test compares the two."""

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TSVECTOR, UUID

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
    }
)


def _tenant() -> Column[str]:
    return Column("tenant", Text, primary_key=True)


def _moment(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=None if nullable else text("now()"))


threads = Table(
    "threads",
    metadata,
    _tenant(),
    Column("id", Text, primary_key=True),
    Column("branch", Text, nullable=False, server_default="main"),
    _moment("created_at"),
)

branches = Table(
    "branches",
    metadata,
    _tenant(),
    Column("thread_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("parent", Text),  # the branch this one was forked from; reserved for forks of threads, always NULL so far
    Column("fork_position", BigInteger),
    Column("tip", BigInteger, nullable=False, server_default="0"),  # the position of the newest state
    Column("arrivals", BigInteger, nullable=False, server_default="0"),  # runs accepted so far
    Column("clarifications", SmallInteger, nullable=False, server_default="0"),
    Column("last_agent", Text),
    Column("last_agents", ARRAY(Text)),  # those of the last turn's tasks
    _moment("created_at"),
    ForeignKeyConstraint(["tenant", "thread_id"], ["threads.tenant", "threads.id"], ondelete="CASCADE"),
)

states = Table(
    "states",
    metadata,
    _tenant(),
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

runs = Table(
    "runs",
    metadata,
    _tenant(),
    Column("id", UUID(as_uuid=False), primary_key=True),
    Column("thread_id", Text, nullable=False),
    Column("branch_id", Text, nullable=False),
    Column("arrival", BigInteger, nullable=False),  # position in its branch's queue
    Column("status", Text, nullable=False, server_default="queued"),
    Column("epoch", BigInteger, nullable=False),
    Column("graph_version", Integer, nullable=False),
    Column("input", Text, nullable=False),
    Column("config", JSONB, nullable=False),
    Column("principal", JSONB, nullable=False),
    Column("correlation_id", Text, nullable=False),
    Column("trace_id", Text, nullable=False),
    Column("seq", BigInteger, nullable=False, server_default="0"),
    Column("fence", BigInteger, nullable=False, server_default="0"),
    Column("flushes", BigInteger, nullable=False, server_default="0"),  # batches written so far, over all fences
    Column("worker", Text),
    _moment("lease_until", nullable=True),
    Column("crashes", SmallInteger, nullable=False, server_default="0"),
    Column("cancel_requested", Boolean, nullable=False, server_default="false"),
    _moment("admitted_at", nullable=True),  # set when the run is put into the queue
    _moment("created_at"),
    _moment("started_at", nullable=True),
    _moment("deadline", nullable=True),
    _moment("ended_at", nullable=True),
    Column("result", JSONB),
    Column("trimmed", BigInteger, nullable=False, server_default="0"),  # events up to this number are no longer kept
    ForeignKeyConstraint(
        ["tenant", "thread_id", "branch_id"],
        ["branches.tenant", "branches.thread_id", "branches.id"],
        ondelete="CASCADE",
    ),
    Index(
        "runs_one_active_per_branch",
        "tenant",
        "thread_id",
        "branch_id",
        unique=True,
        postgresql_where=text("status IN ('running', 'waiting')"),
    ),
    Index(
        "runs_line",
        "tenant",
        "thread_id",
        "branch_id",
        "arrival",
        unique=True,
    ),
    Index("runs_unfinished", "tenant", "status", postgresql_where=text("ended_at IS NULL")),
    Index(
        "runs_ended_badly",
        "tenant",
        "status",
        "id",
        postgresql_where=text("status IN ('failed', 'cancelled', 'budget_exhausted', 'parked')"),
    ),
)

# The next tables belong to a run, without a foreign key: their only writer checks in each transaction that the run
# exists and that it holds its lease, and a check for every row would cost more than the row.

events = Table(
    "events",
    metadata,
    _tenant(),
    Column("run_id", UUID(as_uuid=False), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("type", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    _moment("created_at"),
)

steps = Table(
    "steps",
    metadata,
    _tenant(),
    Column("run_id", UUID(as_uuid=False), primary_key=True),
    Column("id", UUID(as_uuid=False), primary_key=True),
    Column("type", Text, nullable=False),  # llm_call, tool_call, plan, summary, warning
    Column("description", Text, nullable=False),
    Column("metadata", JSONB, nullable=False),
    _moment("created_at"),
)

journal = Table(
    "journal",
    metadata,
    _tenant(),
    Column("run_id", UUID(as_uuid=False), primary_key=True),
    Column("path", Text, primary_key=True),  # of the task or node: `t1`, `t1/review`, `supervisor/1`, `qa`
    Column("kind", Text, primary_key=True),  # context, answer, tool or result
    Column("position", Integer, primary_key=True),  # of the answer
    Column("index", Integer, primary_key=True),  # of the call in its answer
    Column("request_hash", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    _moment("created_at"),
)

ledger = Table(  # a row for each call that may change something
    "ledger",
    metadata,
    _tenant(),
    Column("run_id", UUID(as_uuid=False), primary_key=True),
    Column("key", Text, primary_key=True),  # digest of run, path, position, index, tool and arguments
    Column("path", Text, nullable=False),
    Column("position", Integer, nullable=False),
    Column("index", Integer, nullable=False),
    Column("tool", Text, nullable=False),  # the full name
    Column("effect", Text, nullable=False),
    Column("arguments", JSONB, nullable=False),
    Column("state", Text, nullable=False),  # a CallState other than announced
    Column("outcome", JSONB(none_as_null=True)),
    Column("correlation_id", Text, nullable=False),
    Column("fence", BigInteger, nullable=False, server_default="0"),  # of the execution that sent it; 0 before
    _moment("created_at"),
    _moment("dispatched_at", nullable=True),
    _moment("settled_at", nullable=True),
    Column("settled_by", Text),  # a key's id, local, or the tool that reconciled; NULL: the call's own answer
    Column("idempotency_key", Text),  # as sent to the server; NULL: `key`
    Index("ledger_in_doubt", "tenant", postgresql_where=text("state = 'in_doubt'")),
)

interrupts = Table(  # what a run waits for; keyed like the ledger, within its run
    "interrupts",
    metadata,
    _tenant(),
    Column("id", UUID(as_uuid=False), primary_key=True),
    Column("run_id", UUID(as_uuid=False), nullable=False),
    Column("key", Text, nullable=False),
    Column("kind", Text, nullable=False),  # approval, clarification, budget or in_doubt
    Column("path", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("response_schema", JSONB, nullable=False),
    Column("call", JSONB(none_as_null=True)),  # tool and arguments, exactly
    Column("state", Text, nullable=False, server_default="open"),  # open, resolved, cancelled or expired
    Column("payload", JSONB(none_as_null=True)),
    _moment("created_at"),
    _moment("expires_at", nullable=True),
    _moment("answered_at", nullable=True),
    Column("answered_by", Text),
    Index("interrupts_key", "tenant", "run_id", "key", unique=True),
    Index("interrupts_open", "expires_at", postgresql_where=text("state = 'open'")),
)

artifacts = Table(  # tool results that are too long for a model
    "artifacts",
    metadata,
    _tenant(),
    Column("hash", Text, primary_key=True),  # SHA-256 of the content in UTF-8
    Column("bytes", BigInteger, nullable=False),  # of the content in UTF-8, for the quota
    Column("characters", Integer, nullable=False),
    Column("content", Text, nullable=False),
    _moment("created_at"),
)

run_artifacts = Table(  # references to contents; a content without references is deleted
    "run_artifacts",
    metadata,
    _tenant(),
    Column("run_id", UUID(as_uuid=False), primary_key=True),
    Column("call_id", Text, primary_key=True),
    Column("hash", Text, primary_key=True),
    Column("name", Text, nullable=False),  # of the tool, in full
    Column("media_type", Text, nullable=False),
    _moment("created_at"),
    ForeignKeyConstraint(["tenant", "hash"], ["artifacts.tenant", "artifacts.hash"]),
    Index("run_artifacts_content", "tenant", "hash"),
)

embeddings = Table(  # vectors of texts that come again, such as descriptions of tools
    "embeddings",
    metadata,
    _tenant(),  # `*`: of texts that every tenant sees
    Column("model", Text, primary_key=True),  # `static` or provider:model
    Column("hash", Text, primary_key=True),  # of the text
    Column("vector", LargeBinary, nullable=False),  # 16-bit floats, little-endian
    _moment("created_at"),
)

skills = Table(
    "skills",
    metadata,
    _tenant(),
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
    _moment("last_used_at", nullable=True),
    _moment("created_at"),
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

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    _tenant(),
    Column("key", Text, primary_key=True),  # as the caller sent it
    Column("request_hash", Text, nullable=False),
    Column("run_id", UUID(as_uuid=False), nullable=False),
    _moment("created_at"),
)

switches = Table(  # kill switches
    "switches",
    metadata,
    _tenant(),  # `*`: for all tenants
    Column("kind", Text, primary_key=True),  # tenant, agent or server
    Column("name", Text, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("actor", Text, nullable=False),
    _moment("created_at"),
)

servers = Table(
    "servers",
    metadata,
    _tenant(),
    Column("name", Text, primary_key=True),
    Column("config", JSONB, nullable=False),  # as written: variables and secrets unresolved
    Column("config_hash", Text, nullable=False),
    Column("source", Text, nullable=False),  # file or api
    Column("state", Text, nullable=False),  # ready or degraded
    Column("description", Text, nullable=False, server_default=""),
    Column("tools", JSONB, nullable=False, server_default="{}"),  # tool name -> definition hash
    Column("error", Text, nullable=False, server_default=""),
    Column("remedy", Text, nullable=False, server_default=""),
    _moment("listed_at"),
)

tools = Table(
    "tools",
    metadata,
    _tenant(),
    Column("server", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("hash", Text, primary_key=True),
    Column("definition", JSONB, nullable=False),  # as the server listed it, whole
    _moment("created_at"),
)

configs = Table(
    "configs",
    metadata,
    _tenant(),
    Column("hash", Text, primary_key=True),
    Column("config", JSONB, nullable=False),  # of a server, as epochs pin it: variables and secrets unresolved
    _moment("created_at"),
)

agents = Table(
    "agents",
    metadata,
    _tenant(),
    Column("name", Text, primary_key=True),
    Column("hash", Text, primary_key=True),
    Column("config", JSONB, nullable=False),  # of a custom agent, as pinned by epochs
    _moment("created_at"),
)

epochs = Table(
    "epochs",
    metadata,
    _tenant(),
    Column("number", BigInteger, primary_key=True),
    Column("hash", Text, nullable=False),
    Column("manifest", JSONB, nullable=False),
    Column("changes", JSONB, nullable=False),  # against the epoch that was active before
    Column("actor", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("active", Boolean, nullable=False),
    _moment("created_at"),
    _moment("closed_at", nullable=True),  # set when no run uses it any more
    Index("epochs_one_active", "tenant", unique=True, postgresql_where=text("active")),
)

audit = Table(
    "audit",
    metadata,
    _tenant(),
    Column("id", UUID(as_uuid=False), primary_key=True),
    Column("actor", Text, nullable=False),  # a key's id, or local
    Column("origin", Text, nullable=False),  # a client's address, or one of cli, start, file
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("detail", JSONB, nullable=False),
    _moment("created_at"),
)

audit_events = Table(
    "audit_events",
    metadata,
    _tenant(),
    Column("id", UUID(as_uuid=False), primary_key=True),
    Column("correlation_id", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("payload", JSONB, nullable=False),
    _moment("created_at"),
    _moment("due_at"),  # when it is to be delivered to the context service
    _moment("delivered_at", nullable=True),
    Index("audit_events_due", "due_at", postgresql_where=text("delivered_at IS NULL")),
)

keys = Table(
    "keys",
    metadata,
    _tenant(),
    Column("id", UUID(as_uuid=False), primary_key=True, unique=True),  # looked up before the tenant is known
    Column("name", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False),  # SHA-256 of the secret
    Column("scopes", JSONB, nullable=False),
    Column("grants", JSONB(none_as_null=True)),  # servers and tools; NULL: everything
    _moment("created_at"),
    _moment("expires_at", nullable=True),
    _moment("revoked_at", nullable=True),
    _moment("last_used_at", nullable=True),
)
