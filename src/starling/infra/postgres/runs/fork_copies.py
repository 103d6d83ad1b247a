"""A fork as it is accepted: its branch, and copies of what it begins with. Part of the transaction that accepts it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import AsyncConnection

from starling.core.forks import ForkOrigin, NotForkableError

_BRANCH: Final = """
INSERT INTO branches (tenant, thread_id, id, parent, fork_position, tip, arrivals)
SELECT tenant, thread_id, %(branch)s, branch_id, position - 1, position - 1, 1 FROM states
WHERE tenant = %(tenant)s AND thread_id = %(thread_id)s AND run_id = %(original)s ORDER BY position LIMIT 1
RETURNING id, arrivals, %(epoch)s::bigint"""

_COPY: Final = """
WITH RECURSIVE line (id) AS (
    SELECT %(original)s::uuid
    UNION ALL
    SELECT (forked_from ->> 'run')::uuid FROM line JOIN runs ON runs.tenant = %(tenant)s AND runs.id = line.id
    WHERE forked_from IS NOT NULL),
entries AS (
    INSERT INTO journal (tenant, run_id, path, kind, position, index, request_hash, data)
    SELECT tenant, %(id)s, path, 'inherited', ordinality, 0, '', data
    FROM journal JOIN unnest(%(paths)s::text[], %(kinds)s::text[], %(positions)s::int[])
        WITH ORDINALITY AS chosen (path, kind, position, ordinality) USING (path, kind, position)
    WHERE tenant = %(tenant)s AND run_id = %(original)s AND index = 0 RETURNING data),
kept (hash) AS (
    SELECT jsonb_path_query(data, '$.artifacts[*].id') #>> '{}' FROM entries
    UNION ALL
    SELECT jsonb_path_query(outcome, '$.keyvalue() ? (@.key like_regex "artifact").value[*]') #>> '{}'
    FROM ledger WHERE tenant = %(tenant)s AND run_id IN (SELECT id FROM line) AND NOT %(live)s),
referred AS (
    INSERT INTO run_artifacts (tenant, run_id, call_id, hash, name, media_type)
    SELECT tenant, %(id)s, call_id, hash, name, media_type FROM run_artifacts
    WHERE tenant = %(tenant)s AND run_id IN (SELECT id FROM line) AND hash IN (SELECT hash FROM kept)
    ON CONFLICT DO NOTHING),
answered AS (
    INSERT INTO interrupts (tenant, id, run_id, key, kind, path, reason, message, response_schema, state, payload,
        created_at, expires_at, answered_at, answered_by)
    SELECT tenant, gen_random_uuid(), %(id)s, key, kind, path, reason, message, response_schema, state, payload,
        created_at, expires_at, answered_at, answered_by
    FROM interrupts WHERE tenant = %(tenant)s AND run_id = %(original)s
        AND kind = 'clarification' AND path = ANY(%(paths)s))
SELECT count(*) FROM entries"""

_NAME_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class NewFork:
    """What a fork is accepted with, beside what every run is.

    `entries` are the paths, kinds and positions of the journal's entries that it begins with. Artifacts of
    outcomes among them are referred to again, unless it is live also those of calls that it may get the results of,
    and questions of decisions among them stay answered. Workers with an earlier `graph_version` leave it alone.
    """

    origin: ForkOrigin
    epoch: int
    graph_version: int
    entries: Sequence[tuple[str, str, int]]


async def take_branch(connection: AsyncConnection[Any], key: Mapping[str, Any], fork: NewFork) -> tuple[str, int, int]:
    """Add the branch of a fork; return its name, the place in its queue and the epoch. `key` has the ids of the run.

    It begins before the first state of the original. Raises NotForkableError where that has none.
    """
    values = {**key, "original": fork.origin.run, "epoch": fork.epoch, "branch": f"fork-{key['id'][-_NAME_DIGITS:]}"}
    row = await (await connection.execute(_BRANCH, values)).fetchone()
    if row is None:
        raise NotForkableError(f"Run {fork.origin.run} has no states on its thread.", "Send its request again.")
    return row


async def copy_inherited(connection: AsyncConnection[Any], key: Mapping[str, Any], fork: NewFork) -> None:
    """Copy what a fork begins with. Raises NotForkableError where that was pruned since it was read."""
    paths, kinds, positions = ([entry[column] for entry in fork.entries] for column in range(3))
    of_original = {"original": fork.origin.run, "live": fork.origin.live}
    values = {**key, **of_original, "paths": paths, "kinds": kinds, "positions": positions}
    copied = await (await connection.execute(_COPY, values)).fetchone()
    if copied != (len(fork.entries),):
        raise NotForkableError(f"Run {fork.origin.run} was pruned meanwhile.", "Fork it at `start`.")
