"""Skills as documents that another tenant or installation can take over: JSON lines, one skill a line. Pure."""

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Final, Literal, NoReturn, Self, cast

from pydantic import Field, JsonValue, StringConstraints, ValidationError, model_validator

from brain.registry.cards import AgentKind
from brain.skills.repository import MOST_MERGED
from brain.skills.skill import (
    MOST_CALLS,
    OUTCOME_CHARS,
    SLOT,
    TASK_CHARS,
    LearnedSkill,
    SkillCall,
    StoredSkill,
    is_slot,
    nested_values,
)
from starling.core.closed_document import ClosedDocument
from starling.core.errors import InvalidRequestError
from starling.core.json import Json, JsonObject, storable, strings_in
from starling.core.text_screening import suspicion
from starling.core.validation_errors import fault_list

_SCREENED: Final = 20_000  # characters that are searched for instructions in one step
_FAULTS: Final = 10  # wrong lines, then no more are read
_SHARED: Final = ("task", "template", "outcome", "tools", "agent_kind", "agent")  # fields of every form of a skill
_REMEDY: Final = "Correct the document; nothing was stored."

# Twice what is stored: with secrets replaced, and with the names of slots, texts may have become longer.
type _Text = Annotated[str, StringConstraints(min_length=1, max_length=2 * TASK_CHARS)]
type _Name = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class SkillCallDocument(ClosedDocument):
    """A call: each value of its arguments is a constant or a slot, `{slot, from, example}`."""

    tool: _Name
    arguments: dict[str, JsonValue]

    @model_validator(mode="after")
    def _slots_are_valid(self) -> Self:
        for value in nested_values(cast("Json", self.arguments)):
            if is_slot(value) and not (isinstance(value[SLOT], str) and value["from"] in ("task", "request", "result")):
                raise ValueError("`slot` must be a name, and `from` must be task, request or result")
        return self


class SkillDocument(ClosedDocument):
    """A skill without what belongs to one tenant alone: its id, its runs, its record, its vectors."""

    format: Literal["starling.skill"]
    version: Literal[1]
    task: _Text
    template: _Text
    calls: Annotated[list[SkillCallDocument], Field(min_length=1, max_length=MOST_CALLS)]
    code: Annotated[str, StringConstraints(max_length=_SCREENED)] = ""
    outcome: Annotated[str, StringConstraints(max_length=2 * OUTCOME_CHARS)]
    tools: Annotated[dict[_Name, _Name], Field(description="The hash of the definition of each tool of its calls.")]
    agent_kind: AgentKind
    agent: _Name
    examples: list[_Text] = Field(
        default=[], max_length=MOST_MERGED, description="Further tasks that the calls solved."
    )

    @model_validator(mode="after")
    def _tools_are_those_of_the_calls(self) -> Self:
        if self.tools.keys() != {call.tool for call in self.calls}:
            raise ValueError("`tools` must name exactly the tools of `calls`")
        if sum(len(text) for call in self.calls for text in strings_in(cast("Json", call.arguments))) > _SCREENED:
            raise ValueError(f"the texts of `calls` have more than {_SCREENED:,} characters")
        return self

    @classmethod
    def of(cls, skill: StoredSkill, examples: Sequence[str]) -> Self:
        """Return the document of a stored skill with its further tasks."""
        calls = [call.to_json() for call in skill.calls]
        shared = {name: getattr(skill, name) for name in (*_SHARED, "code")}
        return cls.model_validate(
            {"format": "starling.skill", "version": 1, "calls": calls, "examples": list(examples), **shared}
        )

    def learned(self) -> LearnedSkill:
        """Return the skill, screened for texts that try to instruct."""
        arguments = (text for call in self.calls for text in strings_in(cast("Json", call.arguments)))
        return LearnedSkill(
            **{name: getattr(self, name) for name in _SHARED},
            calls=tuple(SkillCall(call.tool, cast("JsonObject", call.arguments)) for call in self.calls),
            source_path="",
            suspicion=suspicion((self.task, self.template, self.code, self.outcome, *self.examples, *arguments)),
        )

    def secret_place(self, redact: Callable[[str], str]) -> str:
        """Return the field that has a text which `redact` changes, empty if none has."""
        fields = {**self.model_dump(mode="json"), "tools": None}
        found = (name for name, value in fields.items() for text in strings_in(value) if redact(text) != text)
        return next(found, "")


def parse(content: bytes, redact: Callable[[str], str]) -> dict[int, SkillDocument]:
    """Return the skills of JSON lines by the number of their line, from 1; empty lines are skipped.

    Raises InvalidRequestError that names the first lines that are wrong and their fields, also those with secrets.
    """
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"The document is not UTF-8: {error.reason}.", _REMEDY) from None
    found: dict[int, SkillDocument] = {}
    faults: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if len(faults) == _FAULTS:
            faults.append(f"the lines from {number} on were not read")
            break
        try:
            found[number] = SkillDocument.model_validate(storable(json.loads(line, parse_constant=_refused)))
            if place := found[number].secret_place(redact):
                faults.append(f"line {number}: {place}: has a text that looks like a secret")
        except ValidationError as error:
            faults.append(f"line {number}: {fault_list(error.errors())}")
        except (ValueError, RecursionError) as error:
            faults.append(f"line {number}: is not JSON: {error}")
    if faults:
        raise InvalidRequestError("; ".join(faults), _REMEDY)
    if not found:
        raise InvalidRequestError("The document has 0 skills.", "Send one skill a line.")
    return found


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")
