"""JSON documents from models: read tolerantly, validated, and repaired once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel

from brain.prompts import element, lines
from brain.run.journaled_model import JournaledModel, ModelAnswer
from starling.core.errors import BudgetExhaustedError, DeadlineExceededError, LLMInvalidResponse, ModelError
from starling.core.llm import Message, ModelRequest
from starling.core.model_output.json_document import read_document
from starling.core.text import one_line

_SHOWN_ERRORS = 8
_EXCERPT_CHARS = 300
NO_READABLE_ANSWER = "(no readable answer)"

type Check[D] = Callable[[D], Sequence[str]]


@dataclass(frozen=True, slots=True)
class RefusedOutput:
    """The report about an unusable answer: for the user, and for the model that is to correct it."""

    excerpt: str  # at most 300 characters of what the model wrote
    expected: str
    errors: Sequence[str]

    @property
    def message(self) -> str:
        """The text of the warning."""
        wrote = f"It wrote: {self.excerpt}" if self.excerpt else "It wrote nothing that can be read."
        return f"{self.errors[0].rstrip('.')}. Expected: {self.expected}. {wrote}"

    def repair(self, request: ModelRequest) -> ModelRequest:
        """Return the request for a corrected answer. Roles have to alternate, so a note replaces an empty answer."""
        wrong = lines([element("validation_error", text) for text in self.errors])
        demand = "Answer again with the whole corrected JSON object and nothing else."
        asked = f"{wrong}\n{element('expected', self.expected)}\n{demand}"
        said = Message("assistant", self.excerpt or NO_READABLE_ANSWER)
        return replace(request, messages=(*request.messages, said, Message("user", asked)))


async def ask_for_document[D: BaseModel](
    model: JournaledModel,
    path: str,
    position: int,
    request: ModelRequest,
    document: type[D],
    check: Check[D] = lambda _: (),
) -> D:
    """Return the document that the model answered with.

    An answer with errors, of form or by `check`, is sent back once with them, at the next position. If the second
    answer can be read it counts, whatever `check` returns. An answer that was refused before the run was resumed stays
    refused. Raises LLMInvalidResponse if no answer can be read, and what `JournaledModel.ask` raises.
    """
    answer = await model.ask(path, position, request, tolerant=True)
    first, refused = _read(answer, document, check)
    repaired = model.recorded(path, position + 1) if answer.replayed else None
    if repaired is None:
        if first is not None and not refused.errors:
            return first
        _warn(model, answer, refused)
        try:
            repaired = await model.ask(path, position + 1, refused.repair(request), tolerant=True)
        except (ModelError, DeadlineExceededError, BudgetExhaustedError):
            if first is None:
                raise
            return first
    second, refused = _read(repaired, document, check)
    if second is not None:
        return second
    if first is None:
        reason = f"two answers in a row weren't the JSON asked for. {refused.message}"
        raise LLMInvalidResponse(repaired.reply.model, reason, "Try a model that can answer in JSON.")
    _warn(model, repaired, refused)
    return first


def _warn(model: JournaledModel, answer: ModelAnswer, refused: RefusedOutput) -> None:
    """Report a refused answer, once."""
    if not answer.replayed:
        model.recorder.warn(
            "llm_invalid_response", f"{answer.reply.model} answered with an invalid document: {refused.message}"
        )


def _read[D: BaseModel](answer: ModelAnswer, document: type[D], check: Check[D]) -> tuple[D | None, RefusedOutput]:
    """Return the document, None if it can't be read, and the report about the answer, without errors if it is valid."""
    if answer.fault:
        read, errors = None, [answer.fault]
    else:
        read, errors = read_document(answer.reply.content, document)
        if read is not None:
            errors = check(read)[:_SHOWN_ERRORS]
    excerpt = one_line(answer.reply.content, _EXCERPT_CHARS)
    expected = getattr(document, "EXPECTED", "") or f"one JSON object with {', '.join(document.model_fields)}"
    return read, RefusedOutput(excerpt, expected, errors)
