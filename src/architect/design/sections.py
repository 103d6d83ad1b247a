"""What a designer reads: the goal, its parts and the candidates, as sections of its prompt."""

import json
from collections.abc import Sequence
from typing import Final

from architect.design.document import DesignDocument
from architect.design.selection import PartFit, Selection, name_of
from starling.core.json import JsonObject, canonical
from starling.core.teams.building import BuildRequest, Candidate, Section
from starling.core.teams.spec import Finding, TeamSpec
from starling.core.text import one_line
from starling.core.tools import ToolDefinition

MOST_CANDIDATES: Final = 12
_MOST_TOOLS: Final = 20  # of a candidate
_TOOL_CHARS: Final = 160  # of a tool's description
_ABOUT_CHARS: Final = 300
_SCHEMA_CHARS: Final = 600
_KEPT_IN_SCHEMAS: Final = ("type", "enum", "items", "properties", "required", "description")
_ARGUMENT_CHARS: Final = 80
_SHOWN_OF_MEMBERS: Final = {"name", "role", "goal", "backstory", "server", "team", "tools"}


def goal_sections(
    request: BuildRequest, selection: Selection, candidates: Sequence[Candidate], base: TeamSpec | None
) -> list[Section]:
    """Return the sections that every attempt has."""
    sections = [
        Section("goal", request.goal),
        Section("parts", parts=[_part(number, part) for number, part in enumerate(selection.parts, 1)]),
        Section("candidates", parts=[_candidate(one, selection) for one in candidates]),
    ]
    only = request.constraints
    servers, members = ", ".join(only.servers), str(only.members or "")
    given = {"name": request.name, "servers": servers, "most_members": members, "demand": only.text}
    if limits := [Section(kind, text) for kind, text in given.items() if text]:
        sections.append(Section("constraints", parts=limits))
    if request.cases:
        cases = [
            [Section("request", case.input), *(Section("must_call", tool) for tool in case.must_call)]
            for case in request.cases
        ]
        sections.append(Section("cases", parts=[Section("case", parts=case) for case in cases]))
    if base:
        sections.append(Section("current_team", json.dumps(_shown(base), ensure_ascii=False)))
    return sections


def repair_sections(document: DesignDocument, findings: Sequence[Finding]) -> list[Section]:
    """Return what was wrong with a design."""
    shown = json.dumps(document.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False)
    faults = [Section("finding", str(one), {"path": one.path, "rule": one.rule}) for one in findings]
    return [Section("previous_design", shown), Section("findings", parts=faults)]


def answer_section(question: str, answer: str) -> Section:
    """Return what the caller answered to the designer's question."""
    return Section("answer", answer or "There is no answer: choose the most likely reading.", {"question": question})


def _part(number: int, part: PartFit) -> Section:
    attributes = {"id": str(number), "fit": part.fit, "nearest": ", ".join(part.nearest)}
    if part.best and part.fit != "none":
        attributes |= {"server": part.best.server} if part.best.server else {"team": part.best.team}
        if tool := part.best.tool:
            attributes["tool"] = next((one.full_name for one in part.best.tools if one.name == tool), tool)
    return Section("part", part.text, attributes)


def _candidate(candidate: Candidate, selection: Selection) -> Section:
    name = name_of(candidate)
    best = {one.tool for part in selection.parts for one in part.candidates if name_of(one) == name}
    for_goal = {"fits": "goal"} if name in map(name_of, selection.for_goal) else {}
    tools = sorted(candidate.tools, key=lambda tool: tool.name not in best)[:_MOST_TOOLS]
    about = Section("about", one_line(candidate.description, _ABOUT_CHARS))
    kind = "server" if candidate.server else "team"
    return Section(kind, parts=[about, *map(_tool, tools)], attributes={"name": name, **for_goal})


def _tool(tool: ToolDefinition) -> Section:
    arguments = canonical(_short_schema(tool.input_schema))
    attributes = {"name": tool.full_name, "effect": tool.effect.value}
    parts = [Section("about", one_line(tool.description, _TOOL_CHARS))]
    parts += [Section("arguments", arguments)] if len(arguments) <= _SCHEMA_CHARS else []
    return Section("tool", parts=parts, attributes=attributes)


def _short_schema(schema: JsonObject) -> JsonObject:
    """Return of a schema what calls are made by: types, values, and the beginnings of descriptions."""
    kept = {key: value for key, value in schema.items() if key in _KEPT_IN_SCHEMAS}
    if isinstance(about := kept.get("description"), str):
        kept["description"] = one_line(about, _ARGUMENT_CHARS)
    if isinstance(properties := kept.get("properties"), dict):
        kept["properties"] = {name: _short_schema(one) for name, one in properties.items() if isinstance(one, dict)}
    return kept


def _shown(base: TeamSpec) -> JsonObject:
    """Return a spec in the form in which a designer writes one."""
    values = {criterion.id: criterion for criterion in base.criteria}
    examples = [
        {
            "request": example.input,
            "must_call": list(example.must_call),
            "contains": [one.value for key in example.criteria if (one := values[key]).kind == "text_contains"],
            "judged": [one.text for key in example.criteria if (one := values[key]).kind == "judged"],
        }
        for example in base.examples
    ]
    members = [member.model_dump(mode="json", include=_SHOWN_OF_MEMBERS, exclude_none=True) for member in base.members]
    about = {"name": base.name, "purpose": base.purpose, "instructions": base.instructions or ""}
    return {**about, "members": members, "examples": examples}
