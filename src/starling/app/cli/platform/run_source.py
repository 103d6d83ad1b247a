"""Where commands read runs and servers: the API of a running platform, else the database."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

IDLE_SECONDS: Final = 3.0  # after this long a queued run shows which run it waits for

type Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StreamedEvent:
    """One event of a run's stream."""

    seq: int
    type: str
    data: Document


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs are listed: the latest `limit` with this status, of this thread, whose id ends in `ending`.

    With `prompt` those whose model calls used the prompt of this hash.
    """

    limit: int
    status: str | None = None
    thread: str | None = None
    ending: str | None = None
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which runs are exported: one, or the latest of a status or thread, accepted since a moment in ISO 8601."""

    run: str | None = None
    status: str | None = None
    thread: str | None = None
    since: str | None = None
    limit: int | None = None


class RunWatcher(Protocol):
    """Receives the events of a run."""

    @property
    def idle(self) -> bool:
        """Whether the run was accepted and nothing happened since."""
        ...

    def event(self, event: StreamedEvent) -> None:
        """Receive the next event."""
        ...

    def behind(self, run_id: str, status: str) -> None:
        """Receive the run that has to end before this one begins; called if the run is idle for some seconds."""
        ...


class RunSource(Protocol):
    """The runs of one tenant, and the servers. Documents are JSON, with the fields of the commands' `--json`.

    Every method raises a StarlingError: NotFoundError, InvalidRequestError, or that the source doesn't answer.
    """

    def runs(self, wanted: Wanted) -> Sequence[Document]:
        """Return runs, latest first."""
        ...

    def run(self, run_id: str) -> Document:
        """Return everything that is stored about a run."""
        ...

    def explanation(self, run_id: str) -> Document:
        """Return why a run came to what it came to."""
        ...

    def comparison(self, run_id: str, other: str) -> Document:
        """Return two runs side by side."""
        ...

    def records(self, wanted: RecordFilter) -> Iterator[Document]:
        """Yield the records of runs, latest first, read page by page."""
        ...

    def follow(self, run_id: str, after: int, watcher: RunWatcher) -> None:
        """Pass each event after number `after` on, up to `done`; return at once if there is none and the run ended."""
        ...

    def cancel(self, run_id: str) -> str:
        """Cancel a run and return its status."""
        ...

    def give_feedback(self, run_id: str, score: float, comment: str) -> Document:
        """Store feedback on a run, from 0 to 1, and return it."""
        ...

    def waiting(self, run_id: str | None = None) -> Sequence[Document]:
        """Return the open interrupts of a run, or of all runs, oldest first."""
        ...

    def answer(self, run_id: str, answers: Sequence[Document]) -> None:
        """Answer interrupts: `interruptId`, `status` and `payload` of each."""
        ...

    def artifacts(self, run_id: str) -> Sequence[Document]:
        """Return the artifacts of a run."""
        ...

    def artifact(self, run_id: str, artifact: str) -> tuple[str, str]:
        """Return the media type and the content of an artifact."""
        ...

    def servers(self) -> Sequence[Document]:
        """Return the servers and their state."""
        ...

    def server(self, name: str) -> Document:
        """Return a server with its configuration and its tools."""
        ...
