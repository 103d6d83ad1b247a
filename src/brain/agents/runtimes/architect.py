"""The runtime of the architect, and what a build of a team uses of its run: each step has its place in the journal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from brain.agents.runtimes.team import TeamTrial
from brain.agents.turn.agent_runtime import AttemptOutput, TaskExecution
from brain.interrupts.clarification import answer_schema, question_request
from brain.interrupts.requests import InterruptRequest, approval_schema
from brain.prompts import Xml, element, lines, response_schema
from brain.registry.cards import Roster
from brain.registry.team_cards import team_card, tools_of
from brain.retrieval.agent_finder import AgentFinder
from brain.retrieval.search import AgentSearch
from brain.run.recorder import emit_text
from brain.run.structured_output import ask_for_document
from starling.core.events.run_events import ExactCall
from starling.core.events.stream import AnyEvent
from starling.core.json import JsonObject, storable_text
from starling.core.llm import ModelRequest, ModelRole
from starling.core.principal import Principal
from starling.core.settings.schema import Limits
from starling.core.teams.building import (
    ACTIVATE_TEAM,
    Approval,
    BuildOrigin,
    BuildRequest,
    Candidate,
    Section,
    TeamBuilder,
)
from starling.core.teams.proofs import TrialRecord
from starling.core.teams.spec import Example
from starling.core.teams.stars import StarSpec
from starling.core.tools import ToolDefinition

_MAY_BE_MEMBERS: Final = ("specialist", "team")  # kinds of agents
_SCHEMA: Final = approval_schema("Whether the team may be activated.", "Why; whoever asked for the team reads it.")


@dataclass(frozen=True, slots=True)
class TaskBuildRun:
    """The `BuildRun` of a task of the architect."""

    execution: TaskExecution
    ranker: AgentFinder
    trial: TeamTrial
    limits: Limits

    @property
    def origin(self) -> BuildOrigin:
        """Where the build runs, and for whom."""
        run = self.execution.context.run
        caller = Principal(run.tenant, run.caller, run.scopes, run.grant)
        return BuildOrigin(caller, run.id, run.fence, self.execution.path, run.trace_id, run.epoch)

    @property
    def may_ask(self) -> bool:
        """Whether the caller may be asked a question now, or was asked one by an earlier process."""
        run, asked = self.execution.context.run, self.execution.context.interrupts
        own = run.config.limits.max_clarifications
        limit = self.limits.max_clarifications if own is None else min(own, self.limits.max_clarifications)
        return run.clarifications < limit or asked.was_asked_within(f"clarification/{self.execution.path}.")

    async def ask[D: BaseModel](self, step: str, prompt: str, sections: Sequence[Section], document: type[D]) -> D:
        """Return a model's answer as a document. A resumed build asks with the sections that it had first.

        They are recorded, for servers and teams may have changed since.
        """
        context, place = self.execution.context, self._place(step)
        if (recorded := context.journal.find(place, "context")) is None:
            recorded = {"sections": storable_text(rendered(sections))}
            context.journal.record(place, "context", recorded)
        used = context.prompts[prompt]
        request = ModelRequest(
            role=context.allowance.role(ModelRole.REASONING),
            messages=used.fill(sections=Xml(recorded["sections"])),
            response=response_schema(prompt, document),
            max_tokens=context.allowance.max_tokens,
            prompt=used.used,
        )
        return await ask_for_document(context.model, place, 0, request, document)

    async def candidates(self, step: str, texts: Sequence[str], limit: int) -> Sequence[Sequence[Candidate]]:
        context, place = self.execution.context, self._place(step)
        roster = context.roster.cards
        cards = {name: card for name, card in roster.items() if card.kind in _MAY_BE_MEMBERS and not card.degraded}
        recorded: Mapping[str, Any] | None = context.journal.find(place, "context")
        if recorded is None:
            search = AgentSearch(context.run.tenant, context.search.roster, Roster(cards))
            rankings = [await self.ranker.rank(search, text, limit) for text in texts]
            for warning in (ranking.warning for ranking in rankings if ranking.warning):
                context.recorder.warn_once("embeddings_unavailable", warning)
            found = [
                [{"name": one.name, "score": one.comparable_score, "tool": one.tool} for one in ranking.agents]
                for ranking in rankings
            ]
            recorded = {"found": found}
            context.journal.record(place, "context", recorded)
        return [
            [
                Candidate(
                    server=card.server or "",
                    team=card.name if card.star else "",
                    description=card.description,
                    tools=card.tools,
                    score=one["score"],
                    tool=one["tool"],
                )
                for one in found
                if (card := cards.get(one["name"]))
            ]
            for found in recorded["found"]
        ]

    def tools(self) -> Mapping[str, ToolDefinition]:
        cards = self.execution.context.roster.cards.values()
        return {tool.full_name: tool for card in cards for tool in card.tools}

    def clarify(self, step: str, question: str, options: Sequence[str]) -> str:
        """Return the caller's answer to a question, empty where there was none in time."""
        schema = answer_schema(self.limits.input_chars, options)
        request = question_request(self._place(step), question, "The goal can be read in more than one way.", schema)
        answer = self.execution.context.interrupts.answer_to(request)
        return str(answer.payload["answer"]).strip() if answer.state == "resolved" else ""

    def approve_activation(self, team: str, version: int, details: JsonObject) -> Approval:
        """Return an admin's decision on the activation of a version, shown with its details."""
        path = self.execution.path
        call = ExactCall(
            name=ACTIVATE_TEAM,
            args={"team": team, "version": version, **details},
            task_id=self.execution.task_id,
            path=path,
            call_id=f"{self.execution.context.run.id}/{path}",
        )
        request = InterruptRequest(
            kind="approval",
            key=f"activation/{path}",
            path=path,
            reason="A team that may change something, or that is not proven, is activated by an admin only.",
            message=f"Version {version} of the team {team} was built. May it be activated?",
            response_schema=_SCHEMA,
            call=call,
        )
        outcome = self.execution.context.interrupts.answer_to(request)
        note = {"cancelled": "The question was withdrawn.", "expired": "There was no answer in time."}
        said = note.get(outcome.state) or str(outcome.payload.get("note", "")).strip()
        return Approval(outcome.state == "resolved" and outcome.payload.get("approved") is True, outcome.by, said)

    async def try_case(self, star: StarSpec, case: Example) -> TrialRecord:
        await self.flush()  # the design is kept, whatever happens in its trials
        card = team_card(star, tools_of(self.execution.context.roster.cards))
        return await self.trial.run(self.execution, card, case, f"case-{case.id}")

    def check_budget(self) -> None:
        """Return while a model may be asked. Raises DeadlineExceededError, BudgetExhaustedError."""
        budget = self.execution.context.budget
        if budget.exhausted_reason:
            budget.check(self.execution.path)

    def recorded(self, step: str) -> JsonObject | None:
        return self.execution.context.journal.find(self._place(step), "result")

    def record(self, step: str, result: JsonObject, *events: AnyEvent) -> None:
        self.execution.context.journal.record(self._place(step), "result", result)
        for event in events:
            self.execution.context.recorder.emit(event)

    async def flush(self) -> None:
        await self.execution.context.recorder.flush()

    def _place(self, step: str) -> str:
        return f"{self.execution.path}.{step}"


def rendered(sections: Sequence[Section]) -> Xml:
    """Return the sections of a prompt as elements, all their text escaped."""
    return lines(
        element(one.name, rendered(one.parts) if one.parts else one.text, **one.attributes) for one in sections
    )


@dataclass(frozen=True, slots=True)
class ArchitectRuntime:
    """Has a team built: as the run was requested, or with the task as its goal where a supervisor gave it."""

    builder: TeamBuilder
    ranker: AgentFinder
    trial: TeamTrial
    limits: Limits

    async def attempt(self, execution: TaskExecution) -> AttemptOutput:
        """Build a team, and return the report. Raises what the steps of a build raise."""
        execution.position += 1
        context = execution.context
        given = context.run.build if context.assigned_agent else None
        request = (given or BuildRequest()).model_copy(update={"goal": execution.task})
        built = await self.builder.build(request, TaskBuildRun(execution, self.ranker, self.trial, self.limits))
        if built.done and execution.dispatch["whole_plan"]:
            emit_text(context.recorder, execution.message_id, built.text)
        return AttemptOutput(built.text, unable=not built.done, code=built.code)
