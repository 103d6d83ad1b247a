"""Asking a model for a JSON document: validated, repaired once with what was wrong, then given up."""

from dataclasses import replace

from pydantic import BaseModel, ValidationError

from brain.context import Answer, RunContext
from brain.prompts import element, lines
from starling.core.errors import LLMInvalidResponse
from starling.core.json import storable
from starling.core.llm import Message, ModelRequest

_SHOWN_ERRORS = 8


async def ask_for_document[D: BaseModel](
    context: RunContext, path: str, position: int, request: ModelRequest, document: type[D]
) -> tuple[D, bool]:
    """Return the document that the model answered with, and whether it was recorded before.

    A wrong answer is sent back once with its validation errors (at the next position). Raises
    LLMInvalidResponse when the second answer is wrong too, and what `RunContext.ask` raises.
    """
    answer = await context.ask(path, position, request)
    try:
        return _read(answer, document), answer.replayed
    except ValidationError as error:
        wrong = _described(error)
    if not answer.replayed:
        context.warn("llm_invalid_response", f"{answer.reply.model} answered with an invalid document: {wrong[0]}")
    repair = lines([element("validation_error", text) for text in wrong])
    again = replace(
        request,
        messages=(
            *request.messages,
            Message("assistant", answer.reply.content),
            Message("user", f"{repair}\nAnswer again with the whole corrected JSON object and nothing else."),
        ),
    )
    answer = await context.ask(path, position + 1, again)
    try:
        return _read(answer, document), answer.replayed
    except ValidationError as error:
        reason = f"two answers in a row weren't the JSON asked for ({_described(error)[0]})"
        raise LLMInvalidResponse(answer.reply.model, reason, "Try a model that can answer in JSON.") from None


def _read[D: BaseModel](answer: Answer, document: type[D]) -> D:
    """Return the document, with what Postgres can't hold replaced: JSON can spell a NUL."""
    parsed = document.model_validate_json(_json_of(answer.reply.content))
    return document.model_validate(storable(parsed.model_dump()))


def _json_of(text: str) -> str:
    """Return what stands inside a code fence, if the answer is one."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[stripped.index("\n") + 1 : -3]
    return stripped


def _described(error: ValidationError) -> list[str]:
    return [
        f"{'.'.join(map(str, item['loc'])) or 'document'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False)[:_SHOWN_ERRORS]
    ]
