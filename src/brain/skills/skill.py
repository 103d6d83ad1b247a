"""What a solved task leaves: a template of the task, and the calls that solved it with slots for what varies."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeGuard, cast

from starling.core.json import Json, JsonObject, digest

type SkillState = Literal["active", "suspended", "retired", "quarantined"]
type Provenance = Literal["run", "admin", "import"]

MOST_CALLS: Final = 12  # a longer solution fits no other task
TASK_CHARS: Final = 2_000
OUTCOME_CHARS: Final = 500
SLOT: Final = "slot"
_SLOT_KEYS: Final = frozenset({SLOT, "from"})


@dataclass(frozen=True, slots=True)
class SkillCall:
    """A call of a skill. Each value of `arguments` is a constant, or a slot: `{slot, from, example}`.

    `from` says where the value of a slot is to be taken from: `task`, `request`, or `result` of an earlier call.
    """

    tool: str
    arguments: JsonObject

    def to_json(self) -> dict[str, Any]:
        """Return the call as it is stored."""
        return {"tool": self.tool, "arguments": self.arguments}


def call_from_json(stored: Mapping[str, Any]) -> SkillCall:
    """Return a stored call."""
    return SkillCall(stored["tool"], stored["arguments"])


def is_slot(value: Json) -> TypeGuard[JsonObject]:
    """Whether an argument's value is a slot."""
    return isinstance(value, Mapping) and value.keys() >= _SLOT_KEYS and value.keys() <= _SLOT_KEYS | {"example"}


def nested_values(value: Json) -> Iterator[Json]:
    """Yield a value and all that is in it."""
    yield value
    if isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else cast("Sequence[Json]", value):
            yield from nested_values(item)


def with_slots(value: Json, change: Callable[[JsonObject], Json]) -> Json:
    """Return a value with what `change` returns in place of each slot."""
    if is_slot(value):
        return change(value)
    match value:
        case Mapping():
            return {name: with_slots(item, change) for name, item in value.items()}
        case list() | tuple():
            return [with_slots(item, change) for item in cast("Sequence[Json]", value)]
        case _:
            return value


@dataclass(frozen=True, slots=True)
class LearnedSkill:
    """What a task teaches, before it is stored. `tools` has the hash of each tool's definition.

    A skill whose `suspicion` isn't empty is stored in quarantine.
    """

    task: str
    template: str
    calls: tuple[SkillCall, ...]
    outcome: str
    tools: Mapping[str, str]
    agent_kind: str
    agent: str
    source_path: str
    suspicion: str = ""

    @property
    def shape(self) -> str:
        """A digest that skills share if their calls differ only in the values of their slots."""
        return digest([[call.tool, with_slots(call.arguments, lambda _: {SLOT: True})] for call in self.calls])


@dataclass(frozen=True, slots=True)
class PromptSkill:
    """A skill that fits a task, as an agent's prompt has it; `known` if it has solved a task of the same text."""

    id: str
    template: str
    calls: tuple[SkillCall, ...]
    shape: str
    known: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the skill as the journal keeps it with the context that it was part of."""
        return {**asdict(self), "calls": [call.to_json() for call in self.calls]}

    def was_followed(self, made: Sequence[tuple[str, JsonObject]]) -> bool:
        """Whether these calls, each a tool and its arguments, contain those of the skill in order."""
        left = iter(made)
        return all(
            any(call.tool == tool and _fits(call.arguments, arguments) for tool, arguments in left)
            for call in self.calls
        )


def recalled_from_json(stored: Mapping[str, Any]) -> PromptSkill:
    """Return a skill that `PromptSkill.to_json` gave."""
    calls = tuple(map(call_from_json, stored["calls"]))
    return PromptSkill(stored["id"], stored["template"], calls, stored["shape"], stored.get("known", False))


@dataclass(frozen=True, slots=True)
class SkillExample:
    """The text of a task that a skill solved.

    `cosine` is the similarity of its vector to that of a new task, None without vectors of the same model.
    """

    skill_id: str
    text: str
    cosine: float | None = None
    state: SkillState = "active"
    successes: int = 0  # of its skill


@dataclass(frozen=True, slots=True)
class SkillSummary:
    """A skill in a list. `template` is its task with a `{slot}` for what varies, `reason` why it is not active.

    `uses` counts the tasks whose prompt had it, unless an outage, a limit or a person's refusal ended them; `successes`
    those of them that followed it and were approved; `failures` those that were rejected or failed. `merged` is the
    number of further tasks that it was merged with.
    """

    id: str
    state: SkillState
    reason: str
    template: str
    agent_kind: str
    agent: str
    provenance: Provenance
    uses: int
    successes: int
    failures: int
    consecutive_failures: int
    last_used_at: datetime | None
    created_at: datetime
    merged: int


@dataclass(frozen=True, slots=True)
class StoredSkill(SkillSummary):
    """A skill: the task that taught it, its calls, and where it comes from.

    `tools` has the hash of the definition of each tool when the skill was learned, `shared_by` who imported it: the id
    of a key, or `local`; `model` made the vector of its task.
    """

    task: str
    calls: tuple[SkillCall, ...]
    code: str
    outcome: str
    tools: Mapping[str, str]
    source_run: str | None
    source_path: str | None
    shared_by: str | None
    model: str | None


def _fits(pattern: Json, value: Json) -> bool:
    if is_slot(pattern):
        return True
    match pattern:
        case Mapping():
            if not isinstance(value, Mapping) or pattern.keys() != value.keys():
                return False
            return all(_fits(item, value[name]) for name, item in pattern.items())
        case list() | tuple():
            items = cast("Sequence[Json]", pattern)
            if not isinstance(value, (list, tuple)) or len(items) != len(value):
                return False
            return all(map(_fits, items, cast("Sequence[Json]", value)))
        case _:
            return pattern == value and type(pattern) is type(value)
