"""Skills: solved tasks that are recalled for similar ones."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from brain.skills.catalog.repository import SkillFilter
from brain.skills.skill import Provenance, SkillState
from starling.app.http.dependencies import Admin, Caller, FromServices
from starling.app.http.problems import Problem
from starling.app.http.schemas import Name
from starling.core.principal import Principal
from starling.infra.postgres.audit import Actor

router = APIRouter(prefix="/v1/skills", tags=["skills"], responses={422: {"model": Problem}})

LINES: Final = "application/jsonl"
_ID: Final = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
_MOMENT: Final = "2026-11-20T11:12:01.250000Z"
_SLOT: Final[dict[str, Any]] = {"slot": "timezone", "from": "task", "example": "America/Lima"}
_CALL: Final[dict[str, Any]] = {"tool": "time.get_current_time", "arguments": {"timezone": _SLOT}}
_TOOLS: Final = {"time.get_current_time": "5f0a9c41d7"}
_SUMMARY: Final[dict[str, Any]] = {
    "id": _ID,
    "state": "active",
    "reason": "",
    "template": "What time is it in {timezone}?",
    "agent_kind": "specialist",
    "agent": "mcp_agent_time",
    "provenance": "run",
    "uses": 3,
    "successes": 2,
    "failures": 1,
    "consecutive_failures": 0,
    "last_used_at": _MOMENT,
    "created_at": _MOMENT,
    "merged": 1,
}
_SKILL: Final[dict[str, Any]] = _SUMMARY | {
    "task": "What time is it in Lima?",
    "calls": [_CALL],
    "code": "",
    "outcome": "It is 06:12 in Lima.",
    "tools": _TOOLS,
    "source_run": _ID,
    "source_path": "t1",
    "shared_by": "k7m2p9",
    "model": "static",
}
_EXAMPLE: Final[dict[str, Any]] = {
    "task": "Tell me the time in Lima.",
    "provenance": "run",
    "source_run": _ID,
    "created_at": _MOMENT,
}
_LINE: Final = (
    '{"format": "starling.skill", "version": 1, "task": "What time is it in Lima?", "template": "What time is it in '
    '{timezone}?", "calls": [{"tool": "time.get_current_time", "arguments": {"timezone": {"slot": "timezone", "from": '
    '"task", "example": "America/Lima"}}}], "code": "", "outcome": "It is 06:12 in Lima.", "tools": '
    '{"time.get_current_time": "5f0a9c41d7"}, "agent_kind": "specialist", "agent": "mcp_agent_time", "examples": []}\n'
)
_LINES_SCHEMA: Final[dict[str, Any]] = {
    "type": "string",
    "description": "One skill a line, each a JSON object.",
    "examples": [_LINE],
}


class SkillSummary(BaseModel):
    """A skill in a list. `template` is its task with a `{slot}` for what varies, `reason` why it is not active.

    `uses` counts the tasks whose prompt had it; `successes` those of them that followed it and were approved;
    `failures` those that were rejected or failed. `merged` is the number of further tasks that it was merged with.
    """

    model_config = ConfigDict(frozen=True, from_attributes=True)

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


class SkillCall(BaseModel):
    """A call of a skill: each value of its arguments is a constant or a slot, `{slot, from, example}`."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    tool: str
    arguments: dict[str, Any]


class Skill(SkillSummary):
    """A skill: the task that taught it, its calls, and where it comes from.

    `tools` has the hash of the definition of each tool when the skill was learned.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [_SKILL]})

    task: str
    calls: tuple[SkillCall, ...]
    code: str
    outcome: str
    tools: dict[str, str]
    source_run: str | None
    source_path: str | None
    shared_by: str | None = Field(description="Who imported it: the id of a key, or `local`.")
    model: str | None = Field(description="The model that its task's vector was made by.")


class SkillExample(BaseModel):
    """A further task that the calls of a skill solved."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    task: str
    provenance: Provenance
    source_run: str | None
    created_at: datetime


class SkillDetails(BaseModel):
    """A skill with the further tasks that it was merged with, oldest first."""

    model_config = ConfigDict(
        frozen=True,
        from_attributes=True,
        json_schema_extra={"examples": [{"skill": _SKILL, "examples": [_EXAMPLE]}]},
    )

    skill: Skill
    examples: tuple[SkillExample, ...]


class SkillPage(BaseModel):
    """Skills, newest first. `next` is the value of `before` for the next page, null on the last page."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"skills": [_SUMMARY], "next": None}]})

    skills: list[SkillSummary]
    next: str | None


class FoundSkill(BaseModel):
    """A skill as it compares with a text: `similarity` is the sum of `parts`, each the mean of its three best tasks.

    `characters` compares sequences of characters, `meaning` vectors. `recalled`: a task with this text would have it.
    """

    model_config = ConfigDict(frozen=True, from_attributes=True)

    skill: SkillSummary
    similarity: float
    parts: dict[str, float]
    recalled: bool


class FoundSkills(BaseModel):
    """The active skills that are most similar to a text, best first, out of `total` that were compared.

    `certainty` is the similarity of the best one plus its distance to the next one, or to an unrelated skill. Skills
    are recalled only if it reaches `cut`. `warning` says why only words were compared.
    """

    model_config = ConfigDict(
        frozen=True,
        from_attributes=True,
        json_schema_extra={
            "examples": [
                {
                    "total": 2,
                    "certainty": 1.61,
                    "cut": 0.8,
                    "warning": "",
                    "skills": [
                        {
                            "skill": _SUMMARY,
                            "similarity": 0.98,
                            "parts": {"characters": 0.41, "meaning": 0.57},
                            "recalled": True,
                        }
                    ],
                }
            ]
        },
    )

    total: int
    certainty: float | None
    cut: float | None
    warning: str
    skills: tuple[FoundSkill, ...]


class Retirement(BaseModel):
    """Why a skill is retired."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra={"examples": [{"reason": "It looks up the wrong city."}]}
    )

    reason: Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]+$")]


class ImportedLine(BaseModel):
    """What became of a line: `id` is the new skill, or the earlier one that it was merged with or equals.

    `state` and `reason` are those of a new skill: `quarantined` if a text tries to instruct, `suspended` if a tool
    differs here.
    """

    model_config = ConfigDict(frozen=True, from_attributes=True)

    line: int
    outcome: Literal["stored", "merged", "known"]
    id: str
    state: SkillState | None
    reason: str


class Import(BaseModel):
    """What became of each line of an import, in the `tenant` whose skills these are now."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "tenant": "default",
                    "lines": [{"line": 1, "outcome": "stored", "id": _ID, "state": "active", "reason": ""}],
                }
            ]
        }
    )

    tenant: str
    lines: list[ImportedLine]


class SkillQuery(BaseModel):
    """Filters of skills."""

    model_config = ConfigDict(extra="forbid")

    state: SkillState | None = Field(None, description="Only those in this state.")
    agent: Name | None = Field(None, description="Only those of this agent's tasks.")
    ending: str | None = Field(
        None, pattern="^[0-9a-f]{4,32}$", description="Only those whose id, without hyphens, ends in these hex digits."
    )

    def filter(self, before: UUID | None = None) -> SkillFilter:
        """Return the filter that the query stands for."""
        states = (self.state,) if self.state else ()
        return SkillFilter(states, self.agent, str(before) if before else None, self.ending)


class SkillListQuery(SkillQuery):
    """Filters and length of the list of skills."""

    before: UUID | None = Field(None, description="Only those that were stored before this one.")
    limit: int = Field(20, ge=1, le=200)


class SearchQuery(BaseModel):
    """The text of a task, and the agent that would get it."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(min_length=1, max_length=10_000, description="The text of a task.")
    agent: Name | None = Field(None, description="The agent that would get the task; without one, tools of all agents.")
    limit: int = Field(10, ge=1, le=200, description="How many of the best skills.")


class ImportQuery(BaseModel):
    """The tenant that skills are imported for."""

    model_config = ConfigDict(extra="forbid")

    tenant: Name | None = Field(None, description="The tenant that gets the skills; default: that of the key.")


type _List = Annotated[SkillListQuery, Query()]
type _Wanted = Annotated[SkillQuery, Query()]
type _Search = Annotated[SearchQuery, Query()]
type _Import = Annotated[ImportQuery, Query()]


@router.get("", summary="List skills")
async def latest(services: FromServices, caller: Caller, wanted: _List) -> SkillPage:
    """List the skills of your tenant, newest first."""
    found = await services.skills.list(caller.tenant, wanted.filter(wanted.before), wanted.limit + 1)
    shown: Sequence[Any] = found[: wanted.limit]
    following = shown[-1].id if len(found) > wanted.limit else None
    return SkillPage(skills=[SkillSummary.model_validate(skill) for skill in shown], next=following)


@router.get("/search", summary="Search for skills", responses={404: {"model": Problem}})
async def search(services: FromServices, caller: Caller, wanted: _Search) -> FoundSkills:
    """Compare active skills with the text of a task, as a run of yours would, and say which it would recall."""
    found = await services.skills.search(caller, wanted.query, wanted.agent, wanted.limit)
    return FoundSkills.model_validate(found)


@router.get(
    "/export",
    summary="Export skills",
    response_class=Response,
    responses={200: {"content": {LINES: {"schema": _LINES_SCHEMA}}, "description": "One skill a line."}},
)
async def export(services: FromServices, caller: Caller, wanted: _Wanted) -> Response:
    """Return active and suspended skills as JSON lines, or those of the chosen state, newest first.

    A line has no ids, no runs, no record and no vectors: an import makes these anew.
    """
    documents = await services.skills.export(caller.tenant, wanted.filter())
    return Response("".join(f"{document.model_dump_json()}\n" for document in documents), media_type=LINES)


@router.post(
    "/import",
    summary="Import skills",
    openapi_extra={"requestBody": {"required": True, "content": {LINES: {"schema": _LINES_SCHEMA}}}},
)
async def import_skills(request: Request, services: FromServices, caller: Admin, wanted: _Import) -> Import:
    """Store the skills of JSON lines, as an export gives them: all, or none if a line is wrong.

    A skill that resembles a stored one with the same calls becomes a further task of it.
    """
    tenant = wanted.tenant or caller.tenant
    lines = await services.skill_import.store(tenant, await request.body(), _actor(caller, request))
    return Import(tenant=tenant, lines=[ImportedLine.model_validate(line) for line in lines])


@router.get("/{skill_id}", summary="Show a skill", responses={404: {"model": Problem}})
async def show(skill_id: UUID, services: FromServices, caller: Caller) -> SkillDetails:
    """Show a skill with its calls, its record, and the further tasks that it was merged with."""
    return SkillDetails.model_validate(await services.skills.show(caller.tenant, str(skill_id)))


@router.post("/{skill_id}/retire", summary="Retire a skill", responses={404: {"model": Problem}})
async def retire(skill_id: UUID, wanted: Retirement, request: Request, services: FromServices, caller: Admin) -> Skill:
    """Take a skill out of use. Repeating the request changes the reason."""
    actor = _actor(caller, request)
    return Skill.model_validate(await services.skills.retire(caller.tenant, str(skill_id), wanted.reason, actor))


@router.post(
    "/{skill_id}/restore", summary="Restore a skill", responses={404: {"model": Problem}, 409: {"model": Problem}}
)
async def restore(skill_id: UUID, request: Request, services: FromServices, caller: Admin) -> Skill:
    """Take a retired or quarantined skill into use again; successes and failures are counted anew.

    It becomes `suspended` if its tools aren't what they were when it was learned.
    """
    return Skill.model_validate(await services.skills.restore(caller.tenant, str(skill_id), _actor(caller, request)))


def _actor(caller: Principal, request: Request) -> Actor:
    return Actor.caller(caller, request.client.host if request.client else "")
