"""Tries the abilities of models within one time limit."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starling.app.doctor.model_abilities import (
    ABILITIES,
    ANSWERS,
    Ability,
    AbilityMissingError,
    AbilityResult,
    AbilityTrial,
    missing_for,
)
from starling.core.errors import ModelError
from starling.core.llm import ModelRole
from starling.core.settings.schema import Settings
from starling.infra.llm.chat_model import ModelName
from starling.infra.llm.factory import ModelFactory, open_model_factory
from starling.infra.llm.model_selection import OFFLINE, check_model, parse_model_name, supervisor_names

SECONDS = 115.0  # the command ends within two minutes
_PARALLEL = 4  # requests to one endpoint
_HINTS = {
    ("native_tool_call", "tool_call_by_json"): "Set `lacks: [tools]` for this provider: then tools are described in "
    "the prompt.",
    ("json_by_schema", "json_by_instruction"): "Set `lacks: [json_schema]` for this provider: then the schema is a "
    "tool or part of the prompt.",
}


@dataclass(frozen=True, slots=True)
class ModelReport:
    """What a model can do; without results it is not a language model. `used_for` are roles that the settings give it.

    `lacking` has, for each role that the model does not suit, the abilities that it would need.
    """

    model: str
    used_for: Sequence[ModelRole]
    results: Sequence[AbilityResult]
    lacking: Mapping[ModelRole, Sequence[str]]
    seconds: float
    requests: int

    @property
    def suits(self) -> Sequence[ModelRole]:
        """The roles that it has all abilities for."""
        return [role for role in ModelRole if self.results and role not in self.lacking]

    @property
    def hints(self) -> Sequence[str]:
        """What to set so that runs use an ability that they do without now."""
        usable = {result.ability.code for result in self.results if result.usable}
        return [hint for (lost, other), hint in _HINTS.items() if lost not in usable and other in usable]

    @property
    def fails(self) -> bool:
        """Whether it can't do what the settings use it for, or nothing if they don't use it."""
        if not self.results:
            return False
        return any(role in self.lacking for role in self.used_for) if self.used_for else not self.suits


async def try_models(settings: Settings, model: str | None = None, seconds: float = SECONDS) -> Sequence[ModelReport]:
    """Try one model, or the first one of each role and of supervisors, in `seconds`. Raises ConfigurationError."""
    if model is not None:
        check_model(model, settings)
    deadline = asyncio.get_running_loop().time() + seconds
    async with open_model_factory(settings) as models:
        first = [names[0] for names in (*models.named.values(), *filter(None, [supervisor_names(settings)]))]
        names = [parse_model_name(model)] if model is not None else dict.fromkeys(first)
        return await asyncio.gather(*(_tried(models, name, deadline) for name in names))


async def _tried(models: ModelFactory, name: ModelName, deadline: float) -> ModelReport:
    plans = name in supervisor_names(models.settings)[:1]  # it needs what the role `reasoning` needs
    used_for = [it for it in ModelRole if models.named[it][0] == name or (plans and it is ModelRole.REASONING)]
    if str(name) == OFFLINE:
        return ModelReport(OFFLINE, used_for, (), {}, 0.0, 0)
    begun = asyncio.get_running_loop().time()
    run = _ModelTrial(models, name, deadline, asyncio.Semaphore(_PARALLEL))
    results = {result.ability.code: result for result in await run.all()}
    lacking = {role: missing for role in ModelRole if (missing := missing_for(role, results))}
    ordered = [results[ability.code] for ability in ABILITIES]
    return ModelReport(str(name), used_for, ordered, lacking, asyncio.get_running_loop().time() - begun, run.requests)


@dataclass(slots=True)
class _ModelTrial:
    """Tries each ability with a model of its own, so that none knows what another learned about the endpoint."""

    models: ModelFactory
    name: ModelName
    deadline: float
    slots: asyncio.Semaphore
    requests: int = 0

    async def all(self) -> Sequence[AbilityResult]:
        """Try whether it answers, then the quick abilities in parallel, then the slow ones."""
        first = await self._result(ANSWERS)
        others = [ability for ability in ABILITIES if ability is not ANSWERS]
        if not first.usable:
            return [first, *(AbilityResult(ability, "untried", "the model does not answer") for ability in others)]
        quick = [ability for ability in others if not ability.slow]
        slow = [ability for ability in others if ability.slow]
        results = await asyncio.gather(*map(self._result, quick))
        return [first, *results, *(await asyncio.gather(*map(self._result, slow)))]

    async def _result(self, ability: Ability) -> AbilityResult:
        async with self.slots:
            begun = asyncio.get_running_loop().time()
            if begun >= self.deadline:
                return AbilityResult(ability, "untried", "the time was used up before")
            trial = AbilityTrial(self.models.adapter(self.name, ability.without), self.deadline)
            try:
                async with asyncio.timeout_at(trial.deadline):
                    seen = await ability.check(trial)
                state, detail = "emulated" if seen.emulated else "works", seen.detail
            except AbilityMissingError as missing:
                state, detail = "missing", str(missing)
            except ModelError as error:
                state, detail = "missing", error.reason
            except TimeoutError:
                trial.requests += 1  # the one that was given up
                state, detail = "missing", "no complete answer in time"
            self.requests += trial.requests
            return AbilityResult(ability, state, detail, asyncio.get_running_loop().time() - begun)
