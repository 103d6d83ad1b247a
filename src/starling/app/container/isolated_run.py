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
from collections.abc import Callable
from typing import Any

from rich.console import Console

from brain.lifecycle.active_runs import ActiveRuns
from mcp_gateway.connections import connect
from starling.app.container.database import Database
from starling.app.container.execution import open_brain
from starling.app.container.servers import follow_servers
from starling.app.container.services import open_services
from starling.app.telemetry.instrumentation import MeasuredRuns
from starling.app.telemetry.log_context import run_log_context
from starling.app.telemetry.logs import configure_logs
from starling.app.telemetry.metrics import Measurement
from starling.app.worker.isolation import IsolatedWork
from starling.core.errors import DatabaseUnavailableError, LeaseLostError, RunUnwritableError
from starling.core.runs import RunResult
from starling.core.settings.schema import Settings
from starling.infra.postgres.embedded.os_process import end_with


def main() -> None:
    """Execute the run."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # until the run can be drained
    end_with(int(sys.argv[1]), signal.SIGKILL)
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed must not mix with the outcome
    work: IsolatedWork = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the parent
    Settings.settings_file = work.settings_file
    settings = Settings.model_construct(set(work.given), **work.settings)
    configure_logs(settings.log_level, Console(stderr=True), settings)
    with answer, run_log_context(work.claim.run):
        outcome = asyncio.run(_outcome(settings, work, lambda: print("begun", file=answer, flush=True)))
        answer.write(json.dumps(outcome))


async def _outcome(settings: Settings, work: IsolatedWork, begun: Callable[[], None]) -> dict[str, Any]:
    measured: list[Measurement] = []
    database = Database(work.url, work.direct_url)
    try:
        async with (
            open_services(settings, database) as services,
            follow_servers(settings, services.storage, connect) as servers,
            open_brain(settings, services, servers, ActiveRuns()) as brain,
        ):
            await servers.gateway.connections()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, brain.drain)
            metrics = services.storage.metrics.metrics
            metrics.measured = measured
            begun()
            result = await MeasuredRuns(servers.epoch_follower.before(brain.execute), metrics)(work.claim)
    except RunUnwritableError:  # although its lease was renewed: it counts as a crash
        raise
    except (LeaseLostError, DatabaseUnavailableError) as error:
        return {"error": str(error), "measured": measured}
    ended = result if isinstance(result, RunResult) else None
    return {"status": ended and ended.status, "code": ended and ended.code, "measured": measured}
