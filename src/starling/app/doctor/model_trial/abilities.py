"""The ten abilities, and which of them each role of the platform needs."""

from collections.abc import Mapping, Sequence
from typing import Final

from starling.app.doctor.model_trial import checks
from starling.app.doctor.model_trial.ability import Ability, Results
from starling.core.llm import ModelRole
from starling.infra.llm.endpoint_capabilities import Feature

_SCHEMA_FORMS: Final = frozenset({Feature.JSON_SCHEMA, Feature.SCHEMA_TOOL, Feature.JSON_OBJECT})

ANSWERS: Final = Ability("answers", "answers at all", checks.answers)
ABILITIES: Final[Sequence[Ability]] = (
    ANSWERS,
    Ability("json_by_schema", "JSON by schema", checks.json_by_schema),
    Ability("json_by_instruction", "JSON by instruction", checks.json_by_instruction, without=_SCHEMA_FORMS),
    Ability("native_tool_call", "native tool call", checks.native_tool_call),
    Ability("parallel_calls", "parallel calls", checks.parallel_calls),
    Ability("tool_call_by_json", "tool call by JSON", checks.tool_call_by_json, without=frozenset({Feature.TOOLS})),
    Ability("streaming", "streaming", checks.streaming),
    Ability("usage_reported", "usage reported", checks.usage_reported),
    Ability("long_context", "reads a 16k context", checks.reads_long_context, slow=True),
    Ability("data_is_no_instruction", "obeys data-is-not-instruction", checks.data_is_no_instruction),
)

# Of each group one ability suffices.
_NEEDS: Final[Mapping[ModelRole, Sequence[Sequence[str]]]] = {
    ModelRole.ROUTER: (("answers",), ("native_tool_call",), ("data_is_no_instruction",)),
    ModelRole.REASONING: (
        ("answers",), ("json_by_schema", "json_by_instruction"), ("long_context",), ("data_is_no_instruction",),
    ),
    ModelRole.CODING: (("answers",), ("long_context",)),
}  # fmt: skip


def missing_for(role: ModelRole, results: Results) -> list[str]:
    """Return the names of the abilities that the role needs and the model does not have."""
    groups = [[results[code] for code in group] for group in _NEEDS[role]]
    return [
        " or ".join(result.ability.name for result in group)
        for group in groups
        if not any(result.usable for result in group)
    ]
