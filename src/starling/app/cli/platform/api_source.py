"""Runs and servers as the API gives them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Timer
from typing import Protocol
from urllib.parse import quote

from starling.app.cli.platform.api_requests import Api
from starling.app.cli.platform.run_source import (
    IDLE_SECONDS,
    Document,
    RecordFilter,
    RunWatcher,
    StreamedEvent,
    Wanted,
)

_RUN_PAGE, _INTERRUPT_PAGE, _RECORD_PAGE = 200, 500, 10


class StreamClient(Protocol):
    """What is used of `ApiClient`."""

    def follow(self, run_id: str, after: int) -> Iterator[StreamedEvent]:
        """Yield the events of a run after number `after`."""
        ...

    def ahead(self, run_id: str) -> tuple[str, str] | None:
        """Return id and status of the run that a queued run waits for."""
        ...


@dataclass(frozen=True, slots=True)
class ApiDocuments:
    """What a RunSource has but the streams of events: the runs of the tenant that the API is called for."""

    api: Api

    def runs(self, wanted: Wanted) -> Sequence[Document]:
        """Return runs, latest first."""
        given = {"status": wanted.status, "thread_id": wanted.thread, "ending": wanted.ending, "prompt": wanted.prompt}
        query: dict[str, str | int] = {name: value for name, value in given.items() if value is not None}
        found: list[Document] = []
        while len(found) < wanted.limit:
            page = self.api.get("/v1/runs", **query, limit=min(_RUN_PAGE, wanted.limit - len(found)))
            found += [_renamed(run, run_id="id") for run in page["runs"]]
            if page["next"] is None:
                break
            query["before"] = page["next"]
        return found

    def run(self, run_id: str) -> Document:
        """Return everything that is stored about a run."""
        return self.api.get(f"/v1/runs/{run_id}", include="tasks,calls,prompts,feedback")

    def explanation(self, run_id: str) -> Document:
        """Return why a run came to what it came to."""
        return self.api.get(f"/v1/runs/{run_id}/explanation")

    def comparison(self, run_id: str, other: str) -> Document:
        """Return two runs side by side."""
        return self.api.get(f"/v1/runs/{run_id}/comparison/{other}")

    def records(self, wanted: RecordFilter) -> Iterator[Document]:
        """Yield the records of runs, latest first, read page by page."""
        given = {"run_id": wanted.run, "status": wanted.status, "thread_id": wanted.thread, "since": wanted.since}
        query: dict[str, str | int] = {name: value for name, value in given.items() if value is not None}
        left = wanted.limit
        while left is None or left > 0:
            page = self.api.get("/v1/records", **query, limit=min(_RECORD_PAGE, left or _RECORD_PAGE))
            yield from page["records"]
            if page["next"] is None:
                return
            query["before"] = page["next"]
            left = None if left is None else left - len(page["records"])

    def cancel(self, run_id: str) -> str:
        """Cancel a run and return its status."""
        return str(self.api.post(f"/v1/runs/{run_id}/cancel")["status"])

    def give_feedback(self, run_id: str, score: float, comment: str) -> Document:
        """Store feedback on a run and return it."""
        return self.api.post(f"/v1/runs/{run_id}/feedback", {"score": score, "comment": comment})

    def waiting(self, run_id: str | None = None) -> Sequence[Document]:
        """Return the open interrupts."""
        query: dict[str, str | int] = {"run_id": run_id} if run_id else {}
        found: list[Document] = []
        while True:
            page = self.api.get("/v1/approvals", **query, limit=_INTERRUPT_PAGE)
            found += page["interrupts"]
            if page["next"] is None:
                break
            query["after"] = page["next"]
        return [{name: value for name, value in item.items() if name != "createdAt"} for item in found]

    def answer(self, run_id: str, answers: Sequence[Document]) -> None:
        """Answer interrupts of a run."""
        self.api.post(f"/v1/runs/{run_id}/resume", list(answers))

    def artifacts(self, run_id: str) -> Sequence[Document]:
        """Return the artifacts of a run."""
        return self.api.get(f"/v1/runs/{run_id}/artifacts")["artifacts"]

    def artifact(self, run_id: str, artifact: str) -> tuple[str, str]:
        """Return the media type and the content of an artifact."""
        media_type, content = self.api.send("GET", f"/v1/runs/{run_id}/artifacts/{artifact}")
        return media_type, content.decode()

    def servers(self) -> Sequence[Document]:
        """Return the servers and their state."""
        return self.api.get("/v1/servers")["servers"]

    def server(self, name: str) -> Document:
        """Return a server with its configuration and its tools."""
        return self.api.get(f"/v1/servers/{quote(name, safe='')}")


@dataclass(frozen=True, slots=True)
class ApiSource(ApiDocuments):
    """The runs and servers of a running platform."""

    streams: Callable[[], StreamClient]  # made when needed: it takes longer to import than the rest

    def follow(self, run_id: str, after: int, watcher: RunWatcher) -> None:
        """Pass on the events after number `after`."""
        client = self.streams()
        timer = Timer(IDLE_SECONDS, show_run_ahead, (client, run_id, watcher))
        timer.daemon = True
        timer.start()
        try:
            for event in client.follow(run_id, after):
                watcher.event(event)
        finally:
            timer.cancel()


def show_run_ahead(api: StreamClient, run_id: str, watcher: RunWatcher) -> None:
    """Show which run a queued run waits for."""
    if watcher.idle and (ahead := api.ahead(run_id)) and watcher.idle:
        watcher.behind(*ahead)


def _renamed(document: Document, **names: str) -> Mapping[str, object]:
    return {names.get(name, name): value for name, value in document.items()}
