"""A run as one JSON document, as `starling run show --json` and the API give it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from starling.core.artifacts import ArtifactStore
from starling.core.runs import RunStatus
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.feedback import FeedbackRepository
from starling.infra.postgres.runs.interrupts import InterruptReader, StoredInterrupt
from starling.infra.postgres.runs.ledger import LedgerReader
from starling.infra.postgres.runs.listing import RunFilter, RunListing, RunSummary
from starling.infra.postgres.runs.reader import RunReader

_AHEAD = 100  # earlier runs of the thread that are read
_UNFINISHED = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING)


@dataclass(frozen=True, slots=True)
class RunDocuments:
    """Reads everything that is stored about a run."""

    reader: RunReader
    listing: RunListing
    ledger: LedgerReader
    interrupts: InterruptReader
    artifacts: ArtifactStore
    feedback: FeedbackRepository

    async def of(self, key: RunKey) -> Mapping[str, Any]:
        """Return plan, steps, skills, effectful calls, artifacts, what was built and logged, and the result.

        Beside these are the open interrupts and the feedback.

        Raises NotFoundError.
        """
        record = await self.reader.record(key)
        plan = await self.reader.latest_plan(key)
        asked = await self.interrupts.waiting(key.tenant, run=key.id)
        ahead = await self._ahead(key, record.thread_id) if record.status is RunStatus.QUEUED else ()
        return {
            "run_id": record.id,
            "status": record.status.value,
            "thread_id": record.thread_id,
            "trace_id": record.trace_id,
            "epoch": record.epoch,
            "correlation_id": record.correlation_id,
            "tasks": plan.data["tasks"] if plan else [],
            "calls": [asdict(call) | {"call_id": call.call_id} for call in await self.ledger.calls(key)],
            "artifacts": [asdict(item) for item in await self.artifacts.of_run(key.tenant, key.id)],
            "behind": [{"run_id": run.id, "status": run.status.value} for run in ahead],
            "waits_for": [interrupt_document(item) for item in asked],
            "skills": [
                {"task_id": task.task_id, "path": task.path, "skills": [used.model_dump() for used in task.skills]}
                for task in await self.listing.skills(key)
            ],
            "prompts": [one.to_json() for one in await self.listing.prompts(key)],
            "build": [event.data for event in await self.reader.build_events(key)],
            "logs": [event.data for event in await self.reader.tool_logs(key)],
            "feedback": [asdict(given) for given in await self.feedback.of_run(key)],
            "steps": [step.model_dump(mode="json") for step in await self.reader.steps(key)],
            "result": record.result.model_dump(mode="json") if record.result else None,
        }

    async def _ahead(self, key: RunKey, thread: str) -> Sequence[RunSummary]:
        """Return the unfinished earlier runs of the thread, latest first: they end before this one begins."""
        earlier = await self.listing.latest(key.tenant, limit=_AHEAD, which=RunFilter(thread_id=thread, before=key.id))
        return [run for run in earlier if run.status in _UNFINISHED]


def interrupt_document(item: StoredInterrupt) -> dict[str, Any]:
    """Return an interrupt with the fields of its event."""
    return {
        "id": item.id,
        "run_id": item.run_id,
        "kind": item.kind,
        "reason": item.reason,
        "message": item.message,
        "responseSchema": item.response_schema,
        "expiresAt": item.expires_at.isoformat(),
        "call": item.call,
    }
