"""Cancellation of runs from any process: idle runs end at once, running ones by their worker within a second."""

import logging
from contextlib import aclosing, suppress
from dataclasses import dataclass

from brain.lifecycle.active_runs import ActiveRuns
from brain.lifecycle.termination import RunTerminator
from starling.core.errors import DatabaseUnavailableError, LeaseLostError
from starling.core.runs import RunStatus
from starling.infra.postgres.notifications import NotificationHub
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.busy_thread_policy import CANCEL_CHANNEL
from starling.infra.postgres.runs.termination import TerminationRepository

_LOOK_SECONDS = 5.0  # for a notice that was missed
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunCancellation:
    """Cancels runs on request, and those of this process that others flagged."""

    repository: TerminationRepository
    terminator: RunTerminator

    async def cancel(self, key: RunKey) -> RunStatus:
        """Cancel a run and return its status: `running` until its worker has ended it. An ended run is unchanged.

        Raises NotFoundError, for another tenant's as well, DatabaseUnavailableError.
        """
        claim = await self.repository.stop(key)
        if claim is not None:
            try:
                return RunStatus((await self.terminator.stop(claim)).status)
            except LeaseLostError as error:
                _log.info(
                    "another process claimed the run that was to be cancelled: %s", error
                )  # it sees the flag and cancels
        return await self.repository.status(key)

    async def cancel_superseded(self, key: RunKey) -> None:
        """Cancel the earlier runs on the thread that `key` replaces; workers end the running ones."""
        with suppress(DatabaseUnavailableError):  # they are cancelled later
            for earlier in await self.repository.flagged_before(key):
                await self.cancel(earlier)

    async def listen(self, hub: NotificationHub, active_runs: ActiveRuns) -> None:
        """Cancel the flagged runs that are active in this process, until cancelled."""
        async with aclosing(hub.notices(CANCEL_CHANNEL, at_least_every=_LOOK_SECONDS)) as notices:
            async for _ in notices:
                with suppress(DatabaseUnavailableError):
                    active_runs.cancel_all(await self.repository.flagged())
