"""The QA node: the final answer, with sources, assumptions and the parts that could not be answered."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from langgraph.runtime import Runtime

from brain.history import history_lines
from brain.interrupts.requests import interrupt_on_suspension
from brain.lifecycle.answer_passages import Passage
from brain.lifecycle.answer_question import question_update
from brain.lifecycle.answer_sources import MARK, AnswerSources, marked, named
from brain.lifecycle.citations import with_only_source, without_unsourced
from brain.lifecycle.fallback_answer import degraded_line, plain_answer, reply_without_results, with_changes
from brain.lifecycle.final_text import asked_again, fault_of, sent_back, unwrapped
from brain.planning.decision_update import is_open
from brain.planning.shortlist import named_agents
from brain.prompts import element, lines, with_instructions
from brain.run.context import RunContext
from brain.run.journaled_model import ModelAnswer
from brain.run.recorder import StreamBuffer, emit_text
from brain.state import GraphState, TaskOutcome, Update, after, approved, is_answered_directly, wanted
from starling.core.artifacts import ArtifactStore
from starling.core.errors import BudgetExhaustedError, DeadlineExceededError, JournalDivergedError, ModelError
from starling.core.events.run_events import Change
from starling.core.fit import LACKS_PARTS, QA, READ_IN_PART, shown
from starling.core.llm import Message, ModelRequest, ModelRole

_NAME = "qa/1"
_CODER = "coder"
_TASK_CHARS = 200  # of one whose result was read in part


@dataclass(frozen=True, slots=True)
class Qa:
    """Streams the final answer. Asks no model where the answer is complete without one.

    A model's answer is checked: what no source has is sent back once, then marked. Long sources are in `artifacts`.
    Where the circuit breaker ended planning, it may ask the user first, within `max_clarifications`.
    """

    artifacts: ArtifactStore | None = None
    max_clarifications: int = 0
    answer_chars: int = 100_000  # of an answer to a question

    async def __call__(self, state: GraphState, runtime: Runtime[RunContext]) -> Update:
        """Return the update that carries the reply and its citations; after a question was answered, that alone."""
        context = runtime.context
        outcomes = list(approved(state).values())
        asked: Update = {}
        if self.max_clarifications and is_open(state["routing"]):
            messages = _messages(context, state, await _shown(state, outcomes))
            limit, chars = self.max_clarifications, self.answer_chars
            with interrupt_on_suspension():
                asked = await question_update(context, state, messages, limit=limit, answer_chars=chars)
            if asked and asked["routing"].get("begins"):
                return asked
            state = after(state, asked) if asked else state
        written = ""  # by a model from the results; other answers are results
        sources = AnswerSources(state, outcomes, self.artifacts, context.run.tenant, context.run.id)
        if not outcomes:
            reply = reply_without_results(state, partial(_known, context))
            if state["reply"] and is_answered_directly(state):
                said = [state["input_request"], *(message["content"] for message in state["messages"])]
                text = _without_unsourced(context, unwrapped(state["reply"], state["input_request"]), 0, said)
                reply = "\n\n".join([text, *map(degraded_line, state["degraded"])])
            reply = with_changes(reply, _changes(context))
            emit_text(context.recorder, _message_id(context), reply)
        elif len(outcomes) == len(state["tasks"]) == 1 and not outcomes[0]["tools"] and not state["degraded"]:
            text = outcomes[0]["output"]  # was streamed as it was written; brackets in code are not citations
            is_code = outcomes[0]["agent"] == _CODER
            reply = text if is_code else _without_unsourced(context, unwrapped(text, state["input_request"]), 1, ())
            reply = with_changes(reply, _changes(context))
            if reply != text:
                emit_text(context.recorder, f"{_message_id(context)}.checked", reply)
        elif context.run.call:
            reply = outcomes[0]["output"]
        else:
            with interrupt_on_suspension():
                reply = written = await self._write(context, sources)
        return asked | {"reply": reply, "citations": await sources.citations(written)}

    async def _write(self, context: RunContext, sources: AnswerSources) -> str:
        """Return the model's answer, asked for again where it has a fault; else the results as they are."""
        state, outcomes = sources.state, sources.outcomes
        texts = await _shown(state, outcomes)
        in_part = [one for one, text in zip(outcomes, texts, strict=True) if LACKS_PARTS.search(text)]
        messages = _messages(context, state, texts)
        wanted_role = ModelRole.ROUTER if state["routing"].get("is_simple") else ModelRole.REASONING
        role, most = context.allowance.role(wanted_role), context.allowance.max_tokens
        request = ModelRequest(role=role, messages=messages, max_tokens=most, prompt=context.prompts["qa"].used)
        kept: tuple[str, Sequence[Passage]] = "", ()
        try:
            fault = ""
            for position in range(2):
                reply, fault, found = await _stream(context, sources, in_part, request, position)
                if not fault and not found:
                    return reply
                kept = (reply, found) if found else kept
                request = sent_back(request, reply, named(found)) if found else asked_again(request, reply, fault)
            if not kept[1]:
                text = f"The final answer {fault}, also when it was asked for again: these are the results as they are."
                context.recorder.warn("llm_invalid_response", text)
        except (ModelError, JournalDivergedError, DeadlineExceededError, BudgetExhaustedError) as error:
            then = (
                " The results are shown as they are." if isinstance(error, JournalDivergedError) and not kept[1] else ""
            )
            context.recorder.warn(error.code, f"{error}{then}")
        if kept[1]:
            reply = _completed(context, state, outcomes, in_part, _marked(context, *kept))
        else:
            reply = with_changes(plain_answer(outcomes, state["degraded"]), _changes(context))
        # replaces the text streamed before the failure
        emit_text(context.recorder, f"{_message_id(context)}.plain", reply)
        return reply


async def _shown(state: GraphState, outcomes: Sequence[TaskOutcome]) -> Sequence[str]:
    return await shown([outcome["output"] for outcome in outcomes], QA, wanted(state))


def _messages(context: RunContext, state: GraphState, texts: Sequence[str]) -> tuple[Message, Message]:
    """Return the messages that ask for the final answer, with the results as they are shown."""
    messages = context.prompts["qa"].fill(
        user_request=state["input_request"],
        session_history=history_lines(state["messages"]) or None,
        results=lines(element("result", text, citation=str(number)) for number, text in enumerate(texts, start=1)),
        degraded=lines(element("part", part["part"], reason=part["reason"]) for part in state["degraded"]) or None,
        assumptions=lines(element("assumption", text) for text in state["assumptions"]) or None,
    )
    return with_instructions(messages, context.instructions)


def _completed(
    context: RunContext, state: GraphState, outcomes: Sequence[TaskOutcome], in_part: Sequence[TaskOutcome], text: str
) -> str:
    """Return a model's answer with the citations that it has to have; it names what it leaves out or read in part."""
    checked = _without_unsourced(context, text, len(outcomes), [outcome["output"] for outcome in outcomes])
    checked = with_only_source(checked) if len(outcomes) == 1 else checked
    said = " ".join(checked.casefold().split())
    missing = [part for part in state["degraded"] if " ".join(part["part"].casefold().split()) not in said]
    tasks = {task["id"]: task["task"][:_TASK_CHARS] for task in state["tasks"]}
    read = "; ".join(f"{tasks.get(one['task_id'], one['task_id'])} ({one['agent']})" for one in in_part)
    note = [f"{READ_IN_PART} {read}"] if read else []
    return with_changes("\n\n".join([checked, *map(degraded_line, missing), *note]), _changes(context))


def _marked(context: RunContext, text: str, found: Sequence[Passage]) -> str:
    """Return an answer in which what no source has is marked, with one warning, also if this is repeated."""
    path, answer = context.at(_NAME), marked(text, found)
    if found and not context.journal.knows(path, "result", 1):
        context.journal.record(path, "result", {}, 1)
        where = "" if answer == text else f", which are marked {MARK} there"
        said = f"No cited result has these passages of the answer{where}: {named(found)}."
        context.recorder.warn("unsupported_statement", said)
    return answer


def _known(context: RunContext, text: str) -> str:
    """Return the code of what keeps agents from use whose tools a text names, `able` if nothing, empty without any."""
    able, known = (named_agents(roster.cards.values(), text) for roster in (context.roster, context.search.roster))
    if not able or any(not card.degraded for card in able):
        return "able" if able else "not_granted" if known else ""
    return "switched_off" if any(card.name in context.switched_off for card in able) else "agent_unavailable"


def _changes(context: RunContext) -> list[Change]:
    """Return the changes that the answer may have to name; that of a team names none, as the run's answer does."""
    return [] if context.path else context.ledger.changes()


def _without_unsourced(context: RunContext, text: str, sources: int, quoted: Sequence[str]) -> str:
    """Return the text without citations of no source; they are counted in one warning, also if this is repeated."""
    checked, removed = without_unsourced(text, sources, quoted)
    path = context.at(_NAME)
    if removed and not context.journal.knows(path, "result"):
        context.journal.record(path, "result", {})
        numbers = ", ".join(f"[{number}]" for number in removed)
        text = f"Citations that name no source were removed from the answer ({len(removed)}): {numbers}."
        context.recorder.warn("citation_without_source", text)
    return checked


async def _stream(
    context: RunContext, sources: AnswerSources, in_part: Sequence[TaskOutcome], request: ModelRequest, position: int
) -> tuple[str, str, Sequence[Passage]]:
    """Return the completed answer, which continues what was streamed or replaces it.

    Else the model's, and its fault or what no source has: that is marked in a second answer.
    """
    streamed, state, outcomes = "", sources.state, sources.outcomes
    with StreamBuffer(context.recorder, f"{_message_id(context)}{'.again' * position}") as buffer:
        async for item in context.model.ask_streaming(context.at(_NAME), position, request):
            if not isinstance(item, ModelAnswer):
                buffer.write(item.text, restart=item.restart)
                streamed = item.text if item.restart else streamed + item.text
                continue
            written = item.reply.content.strip()
            text = unwrapped(written, state["input_request"])
            if fault := fault_of(item.reply, text, [outcome["output"] for outcome in outcomes]):
                return written, fault, ()
            found = await _unsupported(context, sources, text, position)
            if found and not position:
                return text, "", found
            reply = _completed(context, state, outcomes, in_part, _marked(context, text, found))
            if reply != written:
                goes_on = bool(streamed) and reply.startswith(streamed)
                buffer.write(reply.removeprefix(streamed) if goes_on else reply, restart=not goes_on)
            return reply, "", ()
    raise AssertionError("a stream always ends with its answer")


async def _unsupported(context: RunContext, sources: AnswerSources, text: str, position: int) -> Sequence[Passage]:
    """Return what no source of an answer has; where the answer is repeated, what was found then."""
    path = context.at(_NAME)
    if recorded := context.journal.find(path, "context", position):
        return [Passage(*one) for one in recorded["unsupported"]]
    if found := await sources.unsupported(text):
        context.journal.record(path, "context", {"unsupported": [list(one) for one in found]}, position)
    return found


def _message_id(context: RunContext) -> str:
    return f"{context.at(_NAME)}.{context.run.fence}"
