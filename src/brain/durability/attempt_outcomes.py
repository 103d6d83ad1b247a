"""How each attempt at each task of a run ended: what an attempt did stays done where its result was rejected."""

from collections.abc import Iterable, Iterator
from typing import Literal

from starling.core.task_paths import enclosing, without_numbers
from starling.infra.postgres.runs.writer import JournalEntry

type AttemptStatus = Literal["open", "approved", "rejected"]


class AttemptOutcomes:
    """The attempts of one run that have ended; in a resumed run it begins with those in the journal."""

    def __init__(self, entries: Iterable[JournalEntry] = ()) -> None:
        self._rejected: dict[tuple[str, int], str] = {}
        self._ended: dict[str, tuple[int, bool, str]] = {}  # the last attempt, whether it was approved, else why not
        for entry in entries:
            if entry.kind == "context" and entry.position and ("rejected_for" in entry.data or not entry.data):
                self.reject(entry.path, entry.position, " ".join(entry.data.get("rejected_for", ())))
            elif entry.kind == "result" and "task_id" in entry.data:
                approved = entry.data["status"] == "approved"
                self.end(entry.path, entry.data["attempts"], entry.data["reason"], approved=approved)

    def reject(self, path: str, attempt: int, reason: str) -> None:
        """Note that an attempt was rejected, so that another one follows."""
        self._rejected[path, attempt] = reason

    def end(self, path: str, attempt: int, reason: str, *, approved: bool) -> None:
        """Note that a task has ended with its last attempt."""
        self._ended[path] = attempt, approved, reason

    def status(self, path: str, attempt: int) -> AttemptStatus:
        """Return how an attempt ended: what is inside a team's rejected attempt is rejected, whatever it was inside."""
        around = [self._own(*place) for place in enclosing(path)]
        return "rejected" if "rejected" in around else self._own(path, attempt)

    def is_approved(self, path: str) -> bool:
        """Whether the task of a path was approved in any try, and so were those that it is inside."""
        approved = {without_numbers(place) for place, (_, is_approved, _) in self._ended.items() if is_approved}
        return all(without_numbers(place) in approved for place in [*(task for task, _ in enclosing(path)), path])

    def reason(self, path: str, attempt: int) -> str:
        """Return why an attempt, or one that it is inside, was rejected."""
        return next(self._reasons([*enclosing(path), (path, attempt)]), "")

    def _reasons(self, places: Iterable[tuple[str, int]]) -> Iterator[str]:
        for place in places:
            if self._own(*place) == "rejected":
                yield self._rejected.get(place) or self._ended.get(place[0], (0, False, ""))[2]

    def _own(self, path: str, attempt: int) -> AttemptStatus:
        if (path, attempt) in self._rejected:
            return "rejected"
        if (ended := self._ended.get(path)) is None:
            return "open"
        last, approved, _ = ended
        return "approved" if approved and attempt == last else "rejected"
