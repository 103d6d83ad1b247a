"""JSON documents from models: validated, and repaired once."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic import BaseModel, ValidationError

from brain.journaled_model import JournaledModel, ModelAnswer
from brain.prompts import element, lines
from starling.core.errors import BudgetExhaustedError, DeadlineExceededError, LLMInvalidResponse, ModelError
from starling.core.json import storable
from starling.core.llm import Message, ModelRequest

_SHOWN_ERRORS = 8

type Check[D] = Callable[[D], Sequence[str]]


def _nothing_wrong(document: BaseModel) -> Sequence[str]:
    del document
    return ()


async def ask_for_document[D: BaseModel](
    model: JournaledModel,
    path: str,
    position: int,
    request: ModelRequest,
    document: type[D],
    check: Check[D] = _nothing_wrong,
) -> D:
    """Return the document that the model answered with.

    An answer with errors, of form or by `check`, is sent back once with them, at the next position. If the second
    answer can be parsed it counts, whatever `check` returns. Raises LLMInvalidResponse if no answer can be parsed, and
    what `JournaledModel.ask` raises.
    """
    answer = await model.ask_tolerantly(path, position, request)
    first, wrong = _read(answer, document, check)
    if first is not None and not wrong:
        return first
    if not answer.replayed:
        model.recorder.warn(
            "llm_invalid_response", f"{answer.reply.model} answered with an invalid document: {wrong[0]}"
        )
    try:
        answer = await model.ask_tolerantly(path, position + 1, _repair_request(request, answer, wrong))
    except (ModelError, DeadlineExceededError, BudgetExhaustedError):
        if first is None:
            raise
        return first
    second, wrong = _read(answer, document, check)
    best = first if second is None else second
    if best is None:
        reason = f"two answers in a row weren't the JSON asked for ({wrong[0]})"
        raise LLMInvalidResponse(answer.reply.model, reason, "Try a model that can answer in JSON.")
    return best


def _repair_request(request: ModelRequest, answer: ModelAnswer, wrong: Sequence[str]) -> ModelRequest:
    """Return the request for a corrected answer; a note replaces an empty answer, since roles have to alternate."""
    repair = lines([element("validation_error", text) for text in wrong])
    return replace(
        request,
        messages=(
            *request.messages,
            Message("assistant", answer.reply.content or "(no readable answer)"),
            Message("user", f"{repair}\nAnswer again with the whole corrected JSON object and nothing else."),
        ),
    )


def _read[D: BaseModel](answer: ModelAnswer, document: type[D], check: Check[D]) -> tuple[D | None, Sequence[str]]:
    """Return the document and its errors. Characters that Postgres can't store are replaced: JSON can spell a NUL."""
    if answer.fault:
        return None, [answer.fault]
    try:
        parsed = document.model_validate_json(_json_of(answer.reply.content))
        read = document.model_validate(storable(parsed.model_dump()))
    except ValidationError as error:
        return None, _described(error)
    return read, check(read)[:_SHOWN_ERRORS]


def _json_of(text: str) -> str:
    """Return the text inside the code fence, if the answer is one."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[stripped.index("\n") + 1 : -3]
    return stripped


def _described(error: ValidationError) -> list[str]:
    return [
        f"{'.'.join(map(str, item['loc'])) or 'document'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False)[:_SHOWN_ERRORS]
    ]
