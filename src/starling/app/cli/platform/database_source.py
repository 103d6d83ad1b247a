"""Runs and servers as the database has them, for commands without a running platform."""

import asyncio
from dataclasses import dataclass

from starling.app.cli.platform.api_source import ApiDocuments
from starling.app.cli.platform.run_source import IDLE_SECONDS, RunWatcher, StreamedEvent
from starling.app.cli.signals import run_until_stopped
from starling.app.container.database import find_database
from starling.app.container.services import open_services
from starling.app.services import RunServices
from starling.core.background_tasks import in_background
from starling.core.errors import DatabaseUnavailableError
from starling.core.settings.schema import Settings
from starling.infra.postgres.runs.acceptance import RunKey


@dataclass(frozen=True, slots=True)
class DatabaseSource(ApiDocuments):
    """The runs of `tenant`; each call opens the database."""

    settings: Settings
    tenant: str

    def follow(self, run_id: str, after: int, watcher: RunWatcher) -> None:
        """Pass on the events after number `after`."""
        run_until_stopped(self._follow(RunKey(self.tenant, run_id), after, watcher))

    async def _follow(self, key: RunKey, after: int, watcher: RunWatcher) -> None:
        async with (
            open_services(self.settings, find_database(self.settings)) as services,
            in_background(_show_run_ahead(services.runs, key, watcher), "show-run-ahead"),
        ):
            await services.runs.documents.row(key)
            async for event in services.runs.reader.follow(key, after=after):
                watcher.event(StreamedEvent(event.seq, event.type, event.data))


async def _show_run_ahead(runs: RunServices, key: RunKey, watcher: RunWatcher) -> None:
    """Show after some seconds which run a queued run waits for."""
    await asyncio.sleep(IDLE_SECONDS)
    if not watcher.idle:
        return
    try:
        ahead = (await runs.documents.read(key, ())).behind
    except DatabaseUnavailableError:
        return  # the reader waits for Postgres, too
    if ahead and watcher.idle:
        watcher.behind(ahead.run_id, ahead.status.value)
