"""Runs and servers as the database has them, for commands without a running platform."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from starling.app.cli.run_source import IDLE_SECONDS, Document, RunWatcher, StreamedEvent, Wanted
from starling.app.cli.signals import run_until_stopped
from starling.app.container.admin import AdminServices, open_admin
from starling.app.container.services import Services, open_services
from starling.app.runs.documents import interrupt_document
from starling.app.runtime.background_tasks import in_background
from starling.app.runtime.database import find_database
from starling.core.errors import DatabaseUnavailableError
from starling.core.runs import RunStatus
from starling.core.settings import Settings
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import InterruptAnswer
from starling.infra.postgres.runs.listing import RunFilter


@dataclass(frozen=True, slots=True)
class DatabaseSource:
    """The runs of `tenant`; each call opens the database."""

    settings: Settings
    tenant: str

    def runs(self, wanted: Wanted) -> Sequence[Document]:
        """Return runs, latest first."""
        status = RunStatus(wanted.status) if wanted.status else None
        which = RunFilter(thread_id=wanted.thread, status=status, ending=wanted.ending)
        found = self._read(lambda admin: admin.listing.latest(self.tenant, limit=wanted.limit, which=which))
        return [_as_json(asdict(run)) for run in found]

    def run(self, run_id: str) -> Document:
        """Return everything that is stored about a run."""
        return _as_json(self._read(lambda admin: admin.documents.of(self._key(run_id))))

    def follow(self, run_id: str, after: int, watcher: RunWatcher) -> None:
        """Pass on the events after number `after`."""
        run_until_stopped(self._follow(self._key(run_id), after, watcher))

    def cancel(self, run_id: str) -> str:
        """Cancel a run and return its status."""
        return self._change(lambda services: services.cancellation.cancel(self._key(run_id))).value

    def waiting(self, run_id: str | None = None) -> Sequence[Document]:
        """Return the open interrupts."""

        async def read(services: Services) -> Sequence[Document]:
            if run_id is None:
                found = await services.answering.all_waiting(self.tenant)
            else:
                found = await services.interrupts.waiting(self.tenant, run=run_id)
            return [_as_json(interrupt_document(item)) for item in found]

        return self._change(read)

    def answer(self, run_id: str, answers: Sequence[Document]) -> None:
        """Answer interrupts of a run."""
        given = [InterruptAnswer(item["interruptId"], item["status"], item["payload"]) for item in answers]
        actor = Actor.local("cli")
        self._change(lambda services: services.answering.answer(self._key(run_id), given, actor))

    def artifacts(self, run_id: str) -> Sequence[Document]:
        """Return the artifacts of a run."""

        async def read(admin: AdminServices) -> Sequence[Document]:
            await admin.reader.record(self._key(run_id))  # NotFoundError
            return [_as_json(asdict(item)) for item in await admin.artifacts.of_run(self.tenant, run_id)]

        return self._read(read)

    def artifact(self, run_id: str, artifact: str) -> tuple[str, str]:
        """Return the media type and the content of an artifact."""
        found = self._read(lambda admin: admin.artifacts.read(self.tenant, run_id, artifact))
        return found.media_type, found.text

    def servers(self) -> Sequence[Document]:
        """Return the servers and their state."""
        return self._read(lambda admin: admin.server_documents.every())

    def server(self, name: str) -> Document:
        """Return a server with its configuration and its tools."""
        return self._read(lambda admin: admin.server_documents.one(name))

    def _key(self, run_id: str) -> RunKey:
        return RunKey(self.tenant, run_id)

    def _read[Found](self, ask: Callable[[AdminServices], Awaitable[Found]]) -> Found:
        async def read() -> Found:
            async with open_admin(self.settings) as admin:
                return await ask(admin)

        return run_until_stopped(read())

    def _change[Found](self, ask: Callable[[Services], Awaitable[Found]]) -> Found:
        async def change() -> Found:
            async with open_services(self.settings, find_database(self.settings)) as services:
                return await ask(services)

        return run_until_stopped(change())

    async def _follow(self, key: RunKey, after: int, watcher: RunWatcher) -> None:
        async with (
            open_admin(self.settings) as admin,
            in_background(_show_run_ahead(admin, key, watcher), "show-run-ahead"),
        ):
            await admin.reader.record(key)
            async for event in admin.reader.follow(key, after=after):
                watcher.event(StreamedEvent(event.seq, event.type, event.data))


async def _show_run_ahead(admin: AdminServices, key: RunKey, watcher: RunWatcher) -> None:
    """Show after some seconds which run a queued run waits for."""
    await asyncio.sleep(IDLE_SECONDS)
    if not watcher.idle:
        return
    try:
        ahead = (await admin.listing.details(key)).behind
    except DatabaseUnavailableError:
        return  # the reader waits for Postgres, too
    if ahead and watcher.idle:
        watcher.behind(ahead.run_id, ahead.status.value)


def _as_json(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with moments as text, as the API sends them."""
    return {name: _value(value) for name, value in found.items()}


def _value(value: Any) -> Any:
    match value:
        case Mapping():
            return _as_json(value)  # pyright: ignore[reportUnknownArgumentType]
        case list() | tuple():
            return [_value(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return value.isoformat() if hasattr(value, "isoformat") else str(value)
