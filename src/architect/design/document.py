"""What a designer writes of a team, and the spec that is made of it: ids, limits, grants and approvals are added."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, ClassVar, Final, cast

from pydantic import BaseModel, ConfigDict, model_validator

from architect.checks import NAME_CHARS, free_name
from architect.proof import with_cases
from architect.spec_format import team_of
from architect.team_world import TeamWorld, granted_tools, is_reserved
from starling.core.json import storable_text
from starling.core.model_output.names import aliases, resolve
from starling.core.teams.building import BuildRequest
from starling.core.teams.spec import TeamSpec
from starling.core.tool_calls import Effect

_MEMBER_CHARS: Final = 32
_SHORT, _LONG = 300, 4_000
_ANSWERS: Final = "The answer gives what the request asks for, as the results show it."
"""What is judged of an example whose designer demands nothing of its answer."""


class _Written(BaseModel):
    """Models add members of their own, which are ignored, and write null for what they leave out."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _storable_without_nulls(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        return {key: _storable(value) for key, value in cast("dict[str, object]", data).items() if value is not None}


def _storable(value: object) -> object:
    """Return a text or a list with its texts as they can be stored."""
    if isinstance(value, list):
        return [_storable(one) for one in cast("list[object]", value)]
    return storable_text(value) if isinstance(value, str) else value


class MemberDraft(_Written):
    """A member as the designer writes it; `parts` are the numbers of the parts of the goal that it does."""

    name: str
    role: str = ""
    goal: str = ""
    backstory: str = ""
    server: str = ""
    team: str = ""
    tools: list[str] = []
    parts: list[int] = []


class DesignedExample(_Written):
    """A request that the team is tried on, and what shows that it was done."""

    request: str
    must_call: list[str] = []
    contains: list[str] = []
    judged: list[str] = []


class DesignDocument(_Written):
    """The answer of a designer: a team, or a question where the goal is too vague for one."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    EXPECTED: ClassVar[str] = (
        '{"name", "purpose", "instructions", "members": [{"name", "role", "goal", "server", "tools", "parts"}], '
        '"examples": [{"request", "must_call", "contains", "judged"}], "missing": [], "question": ""}'
    )

    name: str = ""
    purpose: str = ""
    instructions: str = ""
    members: list[MemberDraft] = []
    examples: list[DesignedExample] | None = None  # None: the designer writes none, those that there are stay
    missing: list[str] = []  # numbers, or texts, of parts that no member does
    question: str = ""
    options: list[str] = []

    @property
    def asks(self) -> bool:
        """Whether it is a question in place of a team."""
        return bool(self.question.strip()) and not self.members


@dataclass(frozen=True, slots=True)
class SpecWriter:
    """Makes specs of a designer's documents, for what was requested in a world. `base` is the spec that is changed."""

    request: BuildRequest
    world: TeamWorld
    base: TeamSpec | None = None
    _tools: dict[str, str] = field(default_factory=dict[str, str], init=False)  # full names by their plain forms

    def spec(self, document: DesignDocument) -> TeamSpec:
        """Return the spec of a document, with the caller's own cases, and with kept limits lowered to the caller's.

        Raises TeamInvalidError for what breaks the format.
        """
        members = [self._member(member) for member in document.members]
        criteria = _Criteria()
        examples = list(self._examples(document.examples or (), criteria))
        cases = self._kept_cases() if document.examples is None else {"examples": examples, "criteria": criteria.all}
        limits = self.base.limits.model_dump(mode="json") if self.base else {}
        most = {name: getattr(self.world.limits, name) for name in ("seconds", "iterations", "tokens")}
        limits |= {name: most[name] for name in most if limits.get(name) and most[name] and limits[name] > most[name]}
        if self.request.constraints.members:
            limits["members"] = self.request.constraints.members
        content: dict[str, Any] = {
            "name": self._name(document.name),
            "purpose": _cut(document.purpose, _SHORT) or _cut(self.request.goal, _SHORT),
            "instructions": _cut(document.instructions, _LONG) or None,
            "members": members,
            **cases,
            "limits": limits,
            "grants": self._grants(members),
        }
        whole = with_cases(team_of(content), self.request.cases)
        return self._approved(team_of(whole.model_dump(mode="json")))

    def _grants(self, members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the grants that are kept, if the team has some, with what the design names and new members need."""
        if self.base is None or self.base.grants.grant is None:
            return {}
        kept = {(one.name, one.server, one.team) for one in self.base.members}
        servers, tools = [*self.base.grants.servers], [*self.base.grants.tools]
        for member in members:
            tools += member["tools"]
            if (member["name"], member["server"], member["team"]) not in kept and not member["tools"]:
                star = self.world.teams.get(member["team"] or "")
                tools += star.tools if star else ()
                servers += [member["server"]] if member["server"] else []
        return {"servers": list(dict.fromkeys(servers)), "tools": list(dict.fromkeys(tools))}

    def _name(self, written: str) -> str:
        """Return the name that was asked for or is kept, else the designer's with a suffix if it is taken."""
        if given := self.request.name or (self.base.name if self.base else None):
            return given
        name = _identifier(written, NAME_CHARS) or "team"
        name = name if not is_reserved(name) else f"{name[: NAME_CHARS - 5]}_team".removeprefix("mcp_agent_")
        # where no number helps, the beginning is that of specialists
        return free_name(name, self.world) or free_name("team", self.world) or name

    def _member(self, written: MemberDraft) -> dict[str, Any]:
        server = _known(written.server, self.world.visible_servers())
        team = _known(written.team, self.world.teams)
        tools = list(dict.fromkeys(self._tool(tool, server) for tool in written.tools if tool.strip()))
        name = _identifier(written.name, _MEMBER_CHARS).replace("-", "_").strip("_") or "member"
        role = _cut(written.role, _SHORT) or name.replace("_", " ")
        about = {
            "name": name,
            "role": role,
            "goal": _cut(written.goal, _LONG) or role,
            "backstory": _cut(written.backstory, _LONG) or None,
        }
        source = {"server": server or None, "team": team or None, "tools": [] if team and not server else tools}
        kept = next((one for one in self.base.members if one.name == name), None) if self.base else None
        if kept is None:
            return {**about, **source}
        about = {key: text for key, text in about.items() if text is not None}
        return {**kept.model_dump(mode="json"), **about, **source}

    def _tool(self, written: str, server: str) -> str:
        """Return the full name of the tool that a designer means, as far as it can be known."""
        if self.world.has(written) and self.world.permits(written):
            return written
        if server and "." not in written:
            tools = self.world.visible_tools(server)
            own = resolve(written, aliases({tool: (tool.partition(".")[2],) for tool in tools}))
            return own or f"{server}.{written}"
        if not self._tools:
            servers = self.world.visible_servers()
            self._tools.update(aliases({tool: () for name in servers for tool in self.world.visible_tools(name)}))
        return resolve(written.strip(), self._tools) or written.strip()

    def _examples(self, designed: Sequence[DesignedExample], criteria: "_Criteria") -> Iterator[dict[str, Any]]:
        known = {example.input: example for example in (self.base.examples if self.base else ())}
        for number, written in enumerate(designed, 1):
            if not written.request.strip():
                continue
            request = _cut(written.request, _LONG)
            tools = [self._tool(tool, "") for tool in written.must_call]
            texts = [text for text in written.contains if text.strip()]
            judged = [text for text in written.judged if text.strip()] or ([] if texts else [_ANSWERS])
            demands = [("text_contains", f"The answer contains {text!r}.", text) for text in texts]
            demands += [("judged", text, None) for text in judged]
            kept = known.get(request)
            demands += [
                (one.kind, one.text, one.value)
                for one in (self.base.criteria if kept and self.base else ())
                if kept and one.id in kept.criteria and one.kind in ("artifact", "tool_called")
            ]
            yield {
                "id": f"example_{number}",
                "input": request,
                "fixtures": [one.model_dump(mode="json") for one in kept.fixtures] if kept else [],
                "criteria": [criteria.add(*demand) for demand in dict.fromkeys(demands)],
                "must_call": list(dict.fromkeys(tools)),
                "must_not_call": list(kept.must_not_call) if kept else [],
            }

    def _kept_cases(self) -> dict[str, Any]:
        """Return the examples of the team that is changed, with the criteria that they name."""
        kept = self.base.model_dump(mode="json", include={"examples", "criteria"}) if self.base else {}
        named = {name for example in kept.get("examples", ()) for name in example["criteria"]}
        return {**kept, "criteria": [one for one in kept.get("criteria", ()) if one["id"] in named]}

    def _approved(self, spec: TeamSpec) -> TeamSpec:
        """Return a spec in which a person approves the calls of every member that may call an unsafe tool."""
        unsafe = {
            f"{server}.{name}"
            for server, tools in self.world.servers.items()
            for name, effect in tools.items()
            if effect is Effect.UNSAFE
        }
        members = [
            member.model_copy(update={"approval": "effects"})
            if unsafe.intersection(granted_tools(spec, member, self.world, (self.world.grant,)))
            else member
            for member in spec.members
        ]
        return spec.model_copy(update={"members": tuple(members)})


@dataclass(slots=True)
class _Criteria:
    """The criteria of a spec, each once, under ids of their own."""

    _ids: dict[tuple[str, str, str | None], str] = field(default_factory=dict[tuple[str, str, str | None], str])

    def add(self, kind: str, text: str, value: str | None) -> str:
        """Return the id of a criterion."""
        key = (kind, _cut(text, _SHORT), value and value[:_LONG])
        if key not in self._ids:
            stem = (_identifier(value or text, 40) or kind).strip("_-")
            free, taken = chain([stem], (f"{stem}_{number}" for number in count(2))), {*self._ids.values()}
            self._ids[key] = next(one for one in free if one not in taken)
        return self._ids[key]

    @property
    def all(self) -> list[dict[str, Any]]:
        return [
            {"id": name, "kind": kind, "text": text, "value": value} for (kind, text, value), name in self._ids.items()
        ]


def _known(written: str, names: Iterable[str]) -> str:
    """Return the one of these names that was meant, else the written one."""
    known: Mapping[str, str] = aliases(dict.fromkeys(names, ()))
    return resolve(written.strip(), known) or written.strip()


def _identifier(text: str, chars: int) -> str:
    return re.sub(r"[^a-z0-9_-]+", "_", text.casefold()).strip("_-")[:chars].rstrip("_-")


def _cut(text: str, chars: int) -> str:
    text = text.strip()
    return text if len(text) <= chars else f"{text[: chars - 1].rstrip()}…"
