"""Forks of runs: what a caller may change is checked and resolved, and the fork is accepted as a run."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from brain.durability.inheritance import inherited_entries
from brain.registry.repository import EpochRepository
from brain.state import FORK_VERSION
from starling.app.runs.acceptance import RunAcceptance
from starling.app.telemetry.log_context import add_to_log_context
from starling.core.errors import ConfigurationError, ForbiddenError, InvalidRequestError
from starling.core.forks import START, ForkChanges, ForkOrigin, NotForkableError, decision_number
from starling.core.ids import new_id
from starling.core.json import digest, storable
from starling.core.llm import ModelRole, PromptVersion
from starling.core.principal import Principal, Scope
from starling.core.runs import ForkRequest
from starling.core.tracing import trace_of
from starling.infra.llm.chat_model import ModelName
from starling.infra.llm.model_selection import parse_model_name
from starling.infra.postgres.runs.acceptance import Acceptance, IdempotencyKey, NewRun, RunKey
from starling.infra.postgres.runs.fork_copies import NewFork
from starling.infra.postgres.runs.forks import ForkRepository, Original


@dataclass(frozen=True, slots=True)
class RunForks:
    """Accepts forks. `models` returns the configured ones, `prompt` a stored text by its hash, `star` a team's hash."""

    acceptance: RunAcceptance
    originals: ForkRepository
    epochs: EpochRepository
    models: Callable[[], Awaitable[Collection[ModelName]]]
    prompt: Callable[[str], Awaitable[PromptVersion]]
    star: Callable[[Principal, str, int], Awaitable[str]]

    async def accept(
        self, principal: Principal, original_id: str, request: ForkRequest, key: str | None = None
    ) -> Acceptance:
        """Store a fork as a run on a branch of its own.

        The same request with the same key leads to the same run, as long as the original can be forked.
        Raises NotFoundError, NotForkableError, InvalidRequestError, ForbiddenError where only an admin may change
        something, and what the acceptance of a run raises.
        """
        number = decision_number(request.at)
        changes = await self._resolved(principal, request)
        run, run_id = RunKey(principal.tenant, original_id), new_id()
        trace_id, parent = trace_of(run_id)
        original = await self.originals.original(run)
        _check(original, live=request.live)
        entries = [] if number == 1 else inherited_entries(await self.originals.entries(run), request.at)
        stars = {name: await self.star(principal, name, version) for name, version in changes.teams.items()}
        fork = NewFork(
            origin=ForkOrigin(run=run.id, at=request.at, changes=changes, live=request.live, stars=stars),
            epoch=changes.epoch or original.epoch,
            graph_version=FORK_VERSION,
            entries=[(entry.path, entry.kind, entry.position) for entry in entries],
        )
        asked = {"fork": run.id, **request.model_dump(mode="json")}  # stored digests rest on these names
        accepted = await self.acceptance.runs.accept(
            NewRun(
                key=RunKey(principal.tenant, run_id),
                thread_id=original.thread_id,
                input=changes.input or original.input,
                config=original.config.model_copy(
                    update={"mode": request.mode, "channel": request.channel, "limits": request.limits}
                ),
                principal=principal.as_json(),
                correlation_id=run_id,
                trace_id=trace_id,
                parent_span=parent,
                idempotency=IdempotencyKey(key, digest(storable(asked))) if key else None,
                may_answer=False,
                fork=fork,
            )
        )
        started = accepted.started
        add_to_log_context(run_id=started.run_id, trace_id=started.trace_id, correlation_id=started.correlation_id)
        return accepted

    async def _resolved(self, principal: Principal, request: ForkRequest) -> ForkChanges:
        """Return the changes with whole names and hashes."""
        changes = request.changes
        if changes != ForkChanges(input=changes.input) and Scope.ADMIN not in principal.scopes:
            raise ForbiddenError("Only `input` may be changed.", "A key with the scope `admin` may change the rest.")
        if changes.input is not None and request.at != START:
            raise InvalidRequestError("`input` can only be changed at `start`.", "Leave `at` or `input` out.")
        if changes.epoch:
            await self.epochs.get(changes.epoch)
        return changes.model_copy(
            update={
                "model": await self._models(changes.model) if changes.model else {},
                "prompts": {name: await self._prompt(name, wanted) for name, wanted in changes.prompts.items()},
                "input": None if changes.input is None else self.acceptance.checked(changes.input, "input"),
            }
        )

    async def _models(self, wanted: Mapping[ModelRole, str]) -> Mapping[ModelRole, str]:
        configured = {str(name) for name in await self.models()}
        try:
            found = {role: str(parse_model_name(text)) for role, text in wanted.items()}
        except ConfigurationError as error:
            raise InvalidRequestError(error.message, error.remedy) from None
        if unknown := set(found.values()) - configured:
            named = f"The settings name these: {', '.join(sorted(configured))}."
            raise InvalidRequestError(f"The model {unknown.pop()} is not configured.", named)
        return found

    async def _prompt(self, name: str, wanted: str) -> str:
        found = await self.prompt(wanted)
        if found.name != name:
            raise InvalidRequestError(f"{wanted} is a text of the prompt {found.name!r}, not of {name!r}.")
        return found.hash


def _check(original: Original, *, live: bool) -> None:
    """Raise NotForkableError for a run that can't be forked at any place."""
    if not original.has_ended:
        raise NotForkableError("The run has not ended.", "Wait for its end, or cancel it.")
    if original.is_unplanned:
        raise NotForkableError("The run builds a team, or is a single tool call.", "Send its request again.")
    if live and original.is_pruned:
        pruned = "The run, or one that it is a fork of, was pruned: what it sent is not known."
        raise NotForkableError(pruned, "Fork it without `live`.")
