"""Whether the model of each role answers, and how fast."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from starling.core.diagnostics import Diagnostic, ok, warning
from starling.core.errors import ModelError
from starling.core.llm import Message, ModelClient, ModelRequest, ModelRole
from starling.core.settings.schema import Settings
from starling.infra.llm.factory import open_models

_SECONDS = 15.0
_OFFLINE = "offline:"
_QUESTION = (Message("user", "Answer with the one word: ok"),)


async def check(settings: Settings) -> Sequence[Diagnostic]:
    """Ask the model of each role, and that of supervisors where one is set, for one word. Raises ConfigurationError."""
    wanted = {role.value: ModelRequest(role, _QUESTION, max_tokens=16, timeout=_SECONDS) for role in ModelRole}
    if settings.model_supervisor:
        wanted["supervisor"] = replace(wanted[ModelRole.REASONING.value], supervisor=True)
    async with open_models(settings) as models:
        return await asyncio.gather(*(_asked(models, purpose, request) for purpose, request in wanted.items()))


async def _asked(models: ModelClient, purpose: str, request: ModelRequest) -> Diagnostic:
    subject, name = f"model {purpose}", models.describe(request.role, supervisor=request.supervisor)
    begun = perf_counter()
    try:
        reply = await models.respond(request)
    except ModelError as error:
        remedy = error.remedy or f"Check the endpoint and the key of {name}."
        return Diagnostic(subject, "problem", error.message, remedy)
    said = f"{reply.model} answered in {(perf_counter() - begun) * 1000:.0f} ms."
    if reply.warnings:
        remedy = f"Check the endpoint of {name}."
        return warning(subject, f"{said} Before that: {' '.join(reply.warnings)}", remedy)
    if reply.model.startswith(_OFFLINE):
        return warning(subject, f"{said} It follows fixed rules.", "Set STARLING_MODEL to a language model.")
    return ok(subject, said)
