"""Equal calls of one principal that may change something, made once within the tool's `dedup_ttl`."""

import logging
from dataclasses import dataclass, replace

from mcp_gateway.path.stage import Stage, not_sent
from mcp_gateway.registration.known_servers import Directory
from starling.core.artifacts import ArtifactOrigin, ArtifactStore, NotStored
from starling.core.clock import Deadline
from starling.core.errors import DatabaseUnavailableError, NotFoundError
from starling.core.json import digest
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, ToolCall, ToolOutcome
from starling.infra.postgres.runs.call_claims import CallClaims, CallPlace, EarlierCall

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deduplication:
    """Gives a call the result of an equal one of the same tenant and key that succeeded, also in another run.

    While that one is open or in doubt, the call is refused. A call that may have left already passes: the run's ledger
    handles it.
    """

    directory: Directory
    claims: CallClaims
    artifacts: ArtifactStore
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        is_read = Effect.READ in (call.tool.effect, self.directory.effect(call))
        seconds = None if is_read else self.directory.tool_options(call).dedup_ttl
        if seconds is None or record is None or not record.is_intended(call):
            return await self.inner(call, deadline, record)
        key = digest([call.caller, call.tool.full_name, call.tool.hash, call.arguments])
        earlier = await self.claims.claim(CallPlace(call.tenant, call.run_id, call.key), key, seconds)
        if earlier is None:
            return await self.inner(call, deadline, record)
        if earlier.standing != "done":
            doubt = "it is unknown whether that was done" if earlier.standing == "in_doubt" else "that has not ended"
            which = f" (call {earlier.call_id} of run {earlier.run_id})" if earlier.run_id else ""
            text = f"{call.tool.full_name} was called with the same arguments before{which}, and {doubt}."
            return not_sent("duplicate", text)
        return await self._reused(call, earlier)

    async def _reused(self, call: ToolCall, earlier: EarlierCall) -> ToolOutcome:
        """Return the earlier call's result; artifacts of another run become artifacts of this run too."""
        found = ToolOutcome.from_json(earlier.outcome or {"status": "succeeded", "text": ""})
        note = f"[The result of call {earlier.call_id} of run {earlier.run_id}, which was equal: it wasn't made again.]"
        outcome = replace(found, observation=Observation.REUSED, text=f"{found.text}\n{note}".lstrip(), events=())
        if earlier.run_id == call.run_id:
            return outcome
        named = filter(None, (found.artifact, *found.binary_artifacts))
        kept = {artifact for artifact in named if await self._copied(call, earlier.run_id, artifact)}
        binaries = tuple(artifact for artifact in found.binary_artifacts if artifact in kept)
        return replace(outcome, artifact=found.artifact if found.artifact in kept else "", binary_artifacts=binaries)

    async def _copied(self, call: ToolCall, run_id: str, artifact: str) -> bool:
        """Make an artifact of another run one of the call's run, and return whether that was done."""
        try:
            whole = await self.artifacts.read(call.tenant, run_id, artifact)
            origin = ArtifactOrigin(call.tenant, call.run_id, call.id, call.tool.full_name)
            kept = await self.artifacts.put(origin, whole.content, whole.media_type)
        except (NotFoundError, DatabaseUnavailableError) as error:
            kept = NotStored(error.message)
        if isinstance(kept, NotStored):
            _log.warning("call %s lacks artifact %s of the earlier result: %s", call.id, artifact, kept.reason)
        return isinstance(kept, str)
