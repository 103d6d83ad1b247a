"""Runs for tests of what is below the brain."""

from collections.abc import Sequence

from starling.core.ids import new_id, trace_id_of
from starling.core.principal import DEFAULT_TENANT
from starling.core.runs import RunConfig
from starling.infra.postgres.runs import Claim, Connection, NewRun, RunKey, RunRepository


async def defer_nothing(connection: Connection, keys: Sequence[RunKey]) -> None:
    """A queue that nobody works on."""


def a_run(run_id: str = "", *, tenant: str = DEFAULT_TENANT, thread: str = "thread") -> NewRun:
    run_id = run_id or new_id()
    return NewRun(
        key=RunKey(tenant, run_id),
        thread_id=thread,
        input="Hi.",
        config=RunConfig(),
        principal={},
        correlation_id="c",
        trace_id=trace_id_of(run_id),
        graph_version=1,
    )


async def claimed(repository: RunRepository, key: RunKey, *, lease_seconds: float = 60) -> Claim:
    claim = await repository.claim(key, worker="test", lease_seconds=lease_seconds, run_seconds=60)
    assert claim is not None
    return claim
