"""Runs, and what belongs to one run: its events, steps, journal, ledger and interrupts."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, UUID

from starling.infra.postgres.tables.access import metadata, moment_column, tenant_column

runs = Table(
    "runs",
    metadata,
    tenant_column(),
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
    moment_column("lease_until", nullable=True),
    Column("lease_seconds", Double),  # length of the lease, by the setting of its worker
    Column("crashes", SmallInteger, nullable=False, server_default="0"),
    Column("cancel_requested", Boolean, nullable=False, server_default="false"),
    moment_column("admitted_at", nullable=True),  # set when the run is put into the queue
    moment_column("created_at"),
    moment_column("started_at", nullable=True),
    moment_column("deadline", nullable=True),
    moment_column("ended_at", nullable=True),
    Column("result", JSONB),
    Column("trimmed", BigInteger, nullable=False, server_default="0"),  # events up to this number are no longer kept
    Column("isolation", Text),  # of a run whose process ended: lost once, then due, or alone in a process
    Column("build", JSONB(none_as_null=True)),  # of a run that builds a team: what it was asked for
    Column("forked_from", JSONB(none_as_null=True)),  # of a fork: run, at, changes, live
    Column("direct_call", JSONB(none_as_null=True)),  # of a run that is one tool call: which one
    Column("parent_span", Text),  # of the caller's trace, if it sent one: in hexadecimal
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
    Index(  # a name is reserved for as long as a run builds the team of that name
        "runs_one_build_per_team",
        "tenant",
        text("(build ->> 'name')"),
        unique=True,
        postgresql_where=text("build IS NOT NULL AND ended_at IS NULL"),
    ),
)

# The next tables belong to a run, without a foreign key: their only writer checks in each transaction that the run
# exists and that it holds its lease, and a check for every row would cost more than the row.

events = Table(
    "events",
    metadata,
    tenant_column(),
    Column("run_id", UUID(as_uuid=False), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("type", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    moment_column("created_at"),
    Index(  # verdicts on tasks of a run's own plan
        "events_verdicts",
        "tenant",
        text("(data ->> 'agent')"),
        text("(data ->> 'status')"),
        postgresql_where=text("type = 'reflection' AND NOT data ->> 'path' LIKE '%/%'"),
    ),
)

steps = Table(
    "steps",
    metadata,
    tenant_column(),
    Column("run_id", UUID(as_uuid=False), primary_key=True),
    Column("id", UUID(as_uuid=False), primary_key=True),
    Column("type", Text, nullable=False),  # llm_call, tool_call, plan, summary, warning
    Column("description", Text, nullable=False),
    Column("metadata", JSONB, nullable=False),
    moment_column("created_at"),
)

journal = Table(
    "journal",
    metadata,
    tenant_column(),
    Column("run_id", UUID(as_uuid=False), primary_key=True),
    Column("path", Text, primary_key=True),  # of the task or node: `t1`, `t1/review`, `supervisor/1`, `qa`
    Column("kind", Text, primary_key=True),  # context, answer, tool or result
    Column("position", Integer, primary_key=True),  # of the answer
    Column("index", Integer, primary_key=True),  # of the call in its answer
    Column("request_hash", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    moment_column("created_at"),
)

ledger = Table(  # a row for each call that may change something
    "ledger",
    metadata,
    tenant_column(),
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
    moment_column("created_at"),
    moment_column("dispatched_at", nullable=True),
    moment_column("settled_at", nullable=True),
    Column("settled_by", Text),  # a key's id, local, or the tool that reconciled; NULL: the call's own answer
    Column("idempotency_key", Text),  # as sent to the server; NULL: `key`
    Column("attempt", Integer, nullable=False, server_default="1"),  # at its task
    Column("declared", Boolean, nullable=False, server_default="false"),  # whether an admin set the tool's effect
    Column("reads", Boolean, nullable=False, server_default="false"),  # an undeclared tool's annotations say so
    Column("seconds", Double),  # that it had when it was sent
    Column("reused_key", Text),  # of the call whose result this one has; NULL: it has its own
    Index("ledger_in_doubt", "tenant", postgresql_where=text("state = 'in_doubt'")),
)

call_claims = Table(  # the call whose result equal calls of a principal get, where the tool's settings say so
    "call_claims",
    metadata,
    tenant_column(),
    Column("key", Text, primary_key=True),  # digest of principal, tool and arguments
    Column("run_id", UUID(as_uuid=False), nullable=False),
    Column("call_key", Text, nullable=False),  # of its row in the ledger
    moment_column("created_at"),
)

interrupts = Table(  # what a run waits for; keyed like the ledger, within its run
    "interrupts",
    metadata,
    tenant_column(),
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
    moment_column("created_at"),
    moment_column("expires_at", nullable=True),
    moment_column("answered_at", nullable=True),
    Column("answered_by", Text),
    Column("code", Text),  # why it is asked, where that is something else than its kind
    Index("interrupts_key", "tenant", "run_id", "key", unique=True),
    Index("interrupts_open", "expires_at", postgresql_where=text("state = 'open'")),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    tenant_column(),
    Column("key", Text, primary_key=True),  # as the caller sent it
    Column("request_hash", Text, nullable=False),
    Column("run_id", UUID(as_uuid=False), nullable=False),
    moment_column("created_at"),
)

chat_answers = Table(  # by the hash of an answer with the messages before it
    "chat_answers",
    metadata,
    tenant_column(),
    Column("hash", Text, primary_key=True),
    Column("run_id", UUID(as_uuid=False), nullable=False),
    Column("position", BigInteger),  # of the question that it is, among the states of its run; NULL: their last one
    moment_column("created_at"),
    Index("chat_answers_of_run", "tenant", "run_id"),
)

feedback = Table(  # the latest of each principal
    "feedback",
    metadata,
    tenant_column(),
    Column("run_id", UUID(as_uuid=False), primary_key=True),
    Column("principal", Text, primary_key=True),  # a key's id, or local
    Column("score", Double, nullable=False),  # from 0 to 1
    Column("comment", Text, nullable=False, server_default=""),
    moment_column("created_at"),
    moment_column("updated_at"),
    moment_column("due_at"),  # when it may be sent to Langfuse (again)
    moment_column("sent_at", nullable=True),
    Index("feedback_unsent", "due_at", postgresql_where=text("sent_at IS NULL")),
)

unsent_status_scores = Table(  # a row for each ended run whose status is to be sent to Langfuse
    "unsent_status_scores",
    metadata,
    tenant_column(),
    Column("run_id", UUID(as_uuid=False), primary_key=True),
    moment_column("due_at"),  # when it may be sent (again)
    Index("unsent_status_scores_due", "due_at"),
)


artifacts = Table(  # what of tool results is too long for a model, or binary
    "artifacts",
    metadata,
    tenant_column(),
    Column("hash", Text, primary_key=True),  # SHA-256 of the content
    Column("bytes", BigInteger, nullable=False),  # of the content, for the quota
    Column("characters", Integer, nullable=False),
    Column("content", Text, nullable=False),  # empty if `binary_content` has it
    Column("binary_content", LargeBinary),  # what isn't text in UTF-8
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
    Column("parent", Text),  # the branch whose states up to `fork_position` this one begins with
    Column("fork_position", BigInteger),
    Column("tip", BigInteger, nullable=False, server_default="0"),  # the position of the newest state
    Column("hidden", Boolean, nullable=False, server_default="false"),  # what a rewind left behind, until it is pruned
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
    Column("position", BigInteger, primary_key=True),  # of the first one
    Column("run_id", UUID(as_uuid=False)),
    Column("v", SmallInteger, nullable=False),
    Column("t", Text, nullable=False),  # `Turn`: the states of a run; else the kind of a single one
    Column("ts", Double, nullable=False),  # seconds since the epoch, as in the envelope
    Column("data", LargeBinary, nullable=False),  # JSON in UTF-8, zlib over it where compressed
    Column("compressed", Boolean, nullable=False),
    Column("length", Integer, nullable=False, server_default="1"),  # how many states it has
    ForeignKeyConstraint(
        ["tenant", "thread_id", "branch_id"],
        ["branches.tenant", "branches.thread_id", "branches.id"],
        ondelete="CASCADE",
    ),
)
