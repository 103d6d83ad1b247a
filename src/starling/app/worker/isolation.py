"""Suspected runs, each alone in a process: what a run does to its process then happens to no other run."""

import asyncio
import json
import logging
import os
import pickle
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from starling.app.telemetry.metrics import Measurement
from starling.core.errors import DatabaseUnavailableError, LeaseLostError
from starling.core.run_status import RunEnd, RunStatus
from starling.core.runs import Run
from starling.core.settings.schema import Settings
from starling.infra.postgres.availability import retry_while_unavailable
from starling.infra.postgres.runs.acceptance import Claim
from starling.infra.postgres.runs.leases import Leases

# The process imports from where this one does, whatever its environment says.
_PROGRAM: Final = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from starling.app.container.isolated_run import main
main()"""
_RESTART_SECONDS = 2.0  # after a process that ended before it began
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IsolatedWork:
    """What the process reads from stdin: the settings and the database of its worker, and a claimed run."""

    settings: Mapping[str, Any]
    given: frozenset[str]  # names of the settings that aren't defaults
    settings_file: Path | None
    url: str
    direct_url: str
    claim: Claim


class IsolatedRuns:
    """Executes each claimed run in a process of its own.

    This process keeps the leases and ends a process whose run it has lost. A process that ends without an outcome
    counts as a crash of its run, also one that can't start: else such a run would never end. `take_over` gets what it
    measured, unless it crashed.
    """

    def __init__(
        self,
        leases: Leases,
        settings: Settings,
        url: str,
        direct_url: str,
        take_over: Callable[[Sequence[Measurement]], None],
    ) -> None:
        self._leases = leases
        given = frozenset(settings.model_fields_set)
        self._work_of = partial(IsolatedWork, dict(settings), given, settings.settings_file, url, direct_url)
        self._take_over = take_over
        self._processes: set[Process] = set()
        self._draining = False

    def drain(self) -> None:
        """Let every execution end after its current step, and begin no other one."""
        self._draining = True
        for process in self._processes:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)

    async def execute(self, claim: Claim) -> RunEnd | None:
        """Execute a claimed run; return how it has ended, or None if it waits or continues later.

        Raises LeaseLostError, DatabaseUnavailableError.
        """
        outcome = None if self._draining else await self._outcome(claim)
        if outcome is None:
            return None
        self._take_over(outcome["measured"])
        if message := outcome.get("error"):
            await self._requeue(claim.run, crashed=False)
            raise DatabaseUnavailableError(message)
        return RunEnd(RunStatus(outcome["status"]), outcome["code"]) if outcome["status"] else None

    async def _outcome(self, claim: Claim) -> dict[str, Any] | None:
        """Return the outcome that a process reported, None if it ended without one. Cancelling it kills the process."""
        command = (sys.executable, "-P", "-c", _PROGRAM, str(os.getpid()), json.dumps(sys.path))
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True)
        self._processes.add(process)
        try:
            return await self._followed(process, claim)
        finally:
            self._processes.discard(process)
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _followed(self, process: Process, claim: Claim) -> dict[str, Any] | None:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(ConnectionError):  # the process has ended, which its exit code explains
            process.stdin.write(pickle.dumps(self._work_of(claim)))
            await process.stdin.drain()
            process.stdin.close()
        begun = bool(await process.stdout.readline())
        if begun and not await self._leases.begin_alone(claim.run):
            raise LeaseLostError(claim.run.id, claim.run.fence)
        written = await process.stdout.read()
        if await process.wait() == 0:
            return json.loads(written)
        _log.error("the process of run %s ended with code %s", claim.run.id, process.returncode)
        if not begun:
            await asyncio.sleep(_RESTART_SECONDS)
        await self._requeue(claim.run, crashed=not self._draining)
        return None

    async def _requeue(self, run: Run, *, crashed: bool) -> None:
        await retry_while_unavailable(partial(self._leases.release, run, crashed=crashed))
