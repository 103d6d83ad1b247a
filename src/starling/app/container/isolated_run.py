"""The process of one suspected run; its first argument is the id of its parent process.

It reads its work from stdin. On stdout it writes a line when the execution begins, and then the outcome, one JSON
object: the `status` or an `error`, and what was `measured`. Its parent keeps the lease. It ends with
its parent, also by kill -9; SIGTERM lets the run end after its current step.
"""

import asyncio
import json
import os
import pickle
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from mcp_gateway.registration.repository import ServerRepository
from starling.app.container.database import Database
from starling.app.container.deferred import DeferredBrain, execution
from starling.app.container.services import Services, open_services
from starling.app.container.worker_runtime import open_run_parts
from starling.app.registry.epoch_follower import EpochFollower
from starling.app.registry.epoch_publisher import EpochPublisher
from starling.app.telemetry.instrumentation import MeasuredRuns
from starling.app.telemetry.log_context import run_log_context
from starling.app.telemetry.logs import configure_logs
from starling.app.telemetry.metrics import Measurement
from starling.core.clock import SystemClock
from starling.core.errors import DatabaseUnavailableError, LeaseLostError, RunUnwritableError
from starling.core.runs import RunResult
from starling.core.settings.schema import Settings
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.embedded.parent_death import end_with
from starling.infra.postgres.runs.acceptance import Claim


@dataclass(frozen=True, slots=True)
class IsolatedWork:
    """What the process gets: a claimed run, and the settings and the database of its worker."""

    settings: Mapping[str, Any]
    given: frozenset[str]  # names of the settings that aren't defaults
    database: Database
    claim: Claim

    @classmethod
    def pickled(cls, settings: Settings, database: Database, claim: Claim) -> bytes:
        """Return the work as the process reads it."""
        return pickle.dumps(cls(dict(settings), frozenset(settings.model_fields_set), database, claim))


def main() -> None:
    """Execute the run."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # until the run can be drained
    end_with(int(sys.argv[1]), signal.SIGKILL)
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed must not mix with the outcome
    work: IsolatedWork = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the parent
    settings = Settings.model_construct(set(work.given), **work.settings)
    configure_logs(settings.log_level, Console(stderr=True), settings)
    with answer, run_log_context(work.claim.run):
        outcome = asyncio.run(_outcome(settings, work, lambda: print("begun", file=answer, flush=True)))
        answer.write(json.dumps(outcome))


async def _outcome(settings: Settings, work: IsolatedWork, begun: Callable[[], None]) -> dict[str, Any]:
    measured: list[Measurement] = []
    try:
        async with open_services(settings, work.database) as services, _brain(settings, services) as brain:
            metrics = services.metrics_exporter.metrics
            metrics.measured = measured
            begun()
            result = await MeasuredRuns(brain.follower.before(brain.brain.execute), metrics)(work.claim)
    except RunUnwritableError:  # although its lease was renewed: it counts as a crash
        raise
    except (LeaseLostError, DatabaseUnavailableError) as error:
        return {"error": str(error), "measured": measured}
    return {"status": result.status if isinstance(result, RunResult) else None, "measured": measured}


@dataclass(frozen=True, slots=True)
class _Execution:
    brain: DeferredBrain
    follower: EpochFollower


@asynccontextmanager
async def _brain(settings: Settings, services: Services) -> AsyncGenerator[_Execution]:
    """Open what executes a run, without a worker around it."""
    epoch = await services.epochs.active_number() or 0
    publisher = EpochPublisher(services.epochs, Actor.local("relist"), "registry.relist")  # for tools that have it so
    async with open_run_parts(settings, services, ServerRepository(services.engine, publisher)) as parts:
        follower = EpochFollower(parts.gateway, services.rosters, services.epochs, epoch, SystemClock())
        brain = DeferredBrain(lambda: execution().build_brain(parts))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, brain.drain)
        await parts.gateway.connections()
        async with follower.listening(services.hub):
            yield _Execution(brain, follower)
