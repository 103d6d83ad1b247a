"""Everything that invariants are checked against: rows, effect records, client history, logs, prompts."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson

from starling.core.conversation.states import Envelope, UserMessageState
from starling.core.conversation.turn import unpack
from starling.core.runs import RunStatus
from starling.core.teams.building import ACTIVATE_TEAM
from tests.chaos.client_history import ClientHistory
from tests.chaos.cluster import Cluster

type Row = Mapping[str, Any]

_TRIAL = re.compile(r"\.[a-z]")  # in a path
_ATTEMPT_OR_TRIAL = re.compile(r"(?::\d+|\.[a-z][^/.:]*)$")

_TABLES = """
SELECT c.relname AS name,
    EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant') AS has_tenant
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind = 'r' ORDER BY c.relname"""

_ARTIFACTS = """
SELECT run_id::text AS run_id, hash, content FROM run_artifacts LEFT JOIN artifacts USING (tenant, hash)"""

_CHECKPOINTS = """
SELECT 'checkpoints' AS name, thread_id AS run_id, checkpoint_ns AS path FROM checkpoints
UNION SELECT 'checkpoint_blobs', thread_id, checkpoint_ns FROM checkpoint_blobs
UNION SELECT 'checkpoint_writes', thread_id, checkpoint_ns FROM checkpoint_writes"""

_AUDIT = (
    "SELECT * FROM audit WHERE action IN ('team.build', 'team.prove', 'team.activate', 'team.rollback') ORDER BY id"
)
_PINNED = "SELECT manifest -> 'teams' AS teams FROM epochs WHERE active"


@dataclass(frozen=True)
class Observations:
    """Rows by table, oldest first; `texts` is every text that could contain a secret, by place."""

    history: ClientHistory
    runs: Sequence[Row]
    events: Sequence[Row]
    changes: Sequence[Row] = ()
    writes: Sequence[Row] = ()
    branches: Sequence[Row] = ()
    states: Sequence[Row] = ()
    ledger: Sequence[Row] = ()
    effects: Sequence[Row] = ()
    artifacts: Sequence[Row] = ()  # one row for each call with an artifact, with its content
    versions: Sequence[Row] = ()  # of teams
    pinned_teams: Mapping[str, str] = field(default_factory=dict[str, str])  # of the active epoch: stars by tenant/name
    audit: Sequence[Row] = ()  # of versions of teams
    activations: Sequence[Row] = ()  # interrupts in which builds ask for the activation of a team
    skills: Sequence[Row] = ()
    checkpoints: Sequence[Row] = ()  # those that are left, of all tables: table, run_id, path of the star
    tenant_texts: Sequence[tuple[str, str, str]] = ()  # table, tenant, row as text
    texts: Sequence[tuple[str, str]] = ()  # place, text
    planted: Mapping[str, str] = field(default_factory=dict[str, str])
    services: Sequence[str] = ()  # problems noticed while supervising the services
    gone: Sequence[
        Row
    ] = ()  # pruned rows, complete under `row`; pruned events and ledger rows are also in `events` and `ledger`

    @cached_property
    def run_of(self) -> Mapping[str, Row]:
        return {row["id"]: row for row in self.runs}

    @cached_property
    def events_of(self) -> Mapping[str, Sequence[Row]]:
        return grouped(self.events)

    @cached_property
    def _agents(self) -> Mapping[tuple[str, str], str]:
        starts = (event for event in self.events if event["type"] == "task_start")
        return {(event["run_id"], event["data"]["path"]): event["data"]["agent"] for event in starts}

    def teams_around(self, run_id: str, path: str) -> frozenset[str]:
        """Return the names of the teams that a path is inside."""
        return frozenset(self._agents.get((run_id, task), "") for task in tasks_around(path))

    @cached_property
    def changes_of(self) -> Mapping[str, Sequence[Row]]:
        return grouped(self.changes)


type Invariant = Callable[[Observations], Iterator[tuple[str, str]]]
"""Yields (run id, violation)."""


def tasks_around(path: str) -> list[str]:
    """Return the paths of the tasks whose teams, or whose trials of teams, a path is inside, outermost first.

    Those are t3 and t3/t1 for t3:2/t1/t2, and t4 for t4.case1/t1.
    """
    names = path.split("/")[:-1]
    return [_ATTEMPT_OR_TRIAL.sub("", "/".join(names[: number + 1])) for number in range(len(names))]


def is_in_trial(path: str) -> bool:
    """Whether a path is inside a trial of a team, as t4.case1/t1 is."""
    return _TRIAL.search(path) is not None


def grouped(rows: Iterable[Row], by: str = "run_id") -> Mapping[Any, Sequence[Row]]:
    """Group rows by a column, keeping their order."""
    found: defaultdict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[by]].append(row)
    return found


async def collect(cluster: Cluster, history: ClientHistory) -> Observations:
    """Collect all observations; Postgres must run, the services may have ended."""
    texts = [
        *((f"log {service.name}", service.log.read_text(errors="replace")) for service in cluster.services),
        *(("prompt", orjson.dumps(request.body).decode()) for request in cluster.model.requests),
        *(("trace", str(span)) for span in cluster.collector.spans),
        *(("stream", orjson.dumps(event.data).decode()) for item in history.readings for event in item.events),
    ]
    tenant_texts: list[tuple[str, str, str]] = []
    for table in await cluster.rows(_TABLES):
        tenant = "tenant" if table["has_tenant"] else "''"
        query = f"SELECT {tenant} AS tenant, t::text AS text FROM public.{table['name']} AS t"  # noqa: S608 - ours
        rows = await cluster.rows(query)
        tenant_texts += [(table["name"], row["tenant"], row["text"]) for row in rows]
    gone = await cluster.rows("SELECT *, extract(epoch FROM at)::float8 AS time FROM chaos.gone ORDER BY n")
    tenant_texts += [(row["name"], row["row"]["tenant"], str(row["row"])) for row in gone]
    rows = await cluster.rows("SELECT * FROM states ORDER BY tenant, thread_id, position")
    states = [state for row in rows for state in _read(row)]
    tenant_texts += [("states", row["tenant"], str(row["state"])) for row in states]
    return Observations(
        history=history,
        runs=await cluster.rows(
            "SELECT *, id::text AS id, extract(epoch FROM ended_at)::float8 AS end FROM runs ORDER BY created_at"
        ),
        events=sorted(
            [
                *await cluster.rows("SELECT tenant, run_id::text AS run_id, seq, type, data FROM events"),
                *(row["row"] for row in gone if row["name"] == "events"),
            ],
            key=lambda event: (event["run_id"], event["seq"]),
        ),
        changes=await cluster.rows("SELECT * FROM chaos.changes ORDER BY n"),
        writes=await cluster.rows("SELECT * FROM chaos.writes ORDER BY n"),
        branches=await cluster.rows("SELECT * FROM branches"),
        states=states,
        ledger=[
            *await cluster.rows("SELECT *, run_id::text AS run_id FROM ledger ORDER BY created_at"),
            *(row["row"] for row in gone if row["name"] == "ledger"),
        ],
        effects=cluster.effects(),
        artifacts=await cluster.rows(_ARTIFACTS),
        versions=await cluster.rows("SELECT *, built_by::text AS built_by FROM workflows ORDER BY created_at"),
        pinned_teams={team: star for row in await cluster.rows(_PINNED) for team, star in row["teams"].items()},
        audit=await cluster.rows(_AUDIT),
        activations=[
            row for row in await _interrupts(cluster, gone) if (row["call"] or {}).get("name") == ACTIVATE_TEAM
        ],
        skills=await cluster.rows("SELECT *, id::text AS id, source_run::text AS source_run FROM skills"),
        checkpoints=await cluster.rows(_CHECKPOINTS),
        tenant_texts=tenant_texts,
        texts=[*texts, *((f"table {table}", text) for table, _, text in tenant_texts)],
        planted=cluster.planted,
        services=[problems for service in cluster.services for problems in service.problems],
        gone=gone,
    )


async def _interrupts(cluster: Cluster, gone: Sequence[Row]) -> Sequence[Row]:
    stored = await cluster.rows("SELECT *, run_id::text AS run_id FROM interrupts")
    return [*stored, *(row["row"] for row in gone if row["name"] == "interrupts")]


def _read(row: Row) -> Iterator[Row]:
    """Yield a row for each state of a row of `states`, with the state and its position."""
    envelope = Envelope(row["v"], row["t"], row["ts"], row["data"], row["compressed"], row["length"])
    for position, placed in enumerate(unpack(envelope), row["position"]):
        yield {**row, "run_id": str(row["run_id"]), "position": position, "state": placed.state}


def is_terminal(status: str | None) -> bool:
    return status is not None and RunStatus(status).terminal


def input_of(state: Row) -> str | None:
    """Return the text of a user message; None for other states."""
    return state["state"].text if isinstance(state["state"], UserMessageState) else None
