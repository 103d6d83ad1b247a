"""How each attempt at each task of a run ended: what an attempt did stays done where its result was rejected."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from starling.core.task_paths import enclosing, without_numbers
from starling.infra.postgres.runs.writer import JournalEntry


class AttemptOutcomes:
    """The attempts of one run that have ended; in a resumed run it begins with those in the journal."""

    def __init__(self, entries: Iterable[JournalEntry] = ()) -> None:
        self._rejected: dict[tuple[str, int], str] = {}  # and why
        self._approved: set[tuple[str, int]] = set()
        for entry in entries:
            if entry.kind == "context" and entry.position and ("rejected_for" in entry.data or not entry.data):
                self.reject(entry.path, entry.position, entry.data.get("rejected_for", ()))
            elif entry.kind == "result" and "task_id" in entry.data:
                self.end(entry.path, entry.data)

    def reject(self, path: str, attempt: int, reasons: Iterable[str]) -> None:
        """Note that an attempt was rejected or failed."""
        self._rejected[path, attempt] = " ".join(reasons)

    def end(self, path: str, outcome: Mapping[str, Any]) -> None:
        """Note how the last attempt at a task ended, by the outcome of the task."""
        if outcome["status"] == "approved":
            self._approved.add((path, outcome["attempts"]))
        else:
            self.reject(path, outcome["attempts"], [outcome["reason"]])

    def status(self, path: str, attempt: int) -> Literal["open", "approved", "rejected"]:
        """Return how an attempt ended: what is inside a team's rejected attempt is rejected, whatever it was inside."""
        places = [*enclosing(path), (path, attempt)]
        if any(place in self._rejected for place in places):
            return "rejected"
        return "approved" if places[-1] in self._approved else "open"

    def is_approved(self, path: str) -> bool:
        """Whether the task of a path was approved in any try, and so were those that it is inside."""
        approved = {without_numbers(place) for place, _ in self._approved}
        return all(without_numbers(place) in approved for place in [*(task for task, _ in enclosing(path)), path])

    def reason(self, path: str, attempt: int) -> str:
        """Return why an attempt, or one that it is inside, was rejected."""
        places = [*enclosing(path), (path, attempt)]
        return next((self._rejected[place] for place in places if place in self._rejected), "")
