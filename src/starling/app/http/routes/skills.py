"""Skills: solved tasks that are recalled for similar ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from brain.skills.catalog.repository import SkillFilter
from brain.skills.skill import SkillState, SkillSummary, StoredSkill
from starling.app.http.dependencies import Admin, Caller, ChangeActor, FromServices
from starling.app.http.problems import refusals
from starling.app.http.schemas import ClosedModel, Name
from starling.app.skills.service import SkillDetails, SkillMatches
from starling.app.skills.skill_import import ImportedLine

router = APIRouter(prefix="/v1/skills", tags=["skills"], responses=refusals(422))

LINES: Final = "application/jsonl"
_LINES_SCHEMA: Final = {"type": "string", "description": "One skill a line, each a JSON object."}


@dataclass(frozen=True, slots=True)
class SkillPage:
    """Skills, newest first. `next` is the value of `before` for the next page, null on the last page."""

    skills: Sequence[SkillSummary]
    next: str | None


@dataclass(frozen=True, slots=True)
class ImportedSkills:
    """The outcome of each line of an import, in the `tenant` whose skills these are now."""

    tenant: str
    lines: Sequence[ImportedLine]


class Retirement(ClosedModel):
    """Why a skill is retired."""

    reason: Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]+$")]


class SkillFilters(ClosedModel):
    """Filters of skills."""

    state: SkillState | None = Field(None, description="Only those in this state.")
    agent: Name | None = Field(None, description="Only those of this agent's tasks.")
    ending: str | None = Field(
        None, pattern="^[0-9a-f]{4,32}$", description="Only those whose id, without hyphens, ends in these hex digits."
    )

    def filter(self, before: UUID | None = None) -> SkillFilter:
        """Return the filter that the query stands for."""
        states = (self.state,) if self.state else ()
        return SkillFilter(states, self.agent, str(before) if before else None, self.ending)


class SkillListQuery(SkillFilters):
    """Filters and length of the list of skills."""

    before: UUID | None = Field(None, description="Only those that were stored before this one.")
    limit: int = Field(20, ge=1, le=200)


class SearchQuery(ClosedModel):
    """The text of a task, and the agent that would get it."""

    query: str = Field(min_length=1, max_length=10_000, description="The text of a task.")
    agent: Name | None = Field(None, description="The agent that would get the task; without one, tools of all agents.")
    limit: int = Field(10, ge=1, le=200, description="How many of the best skills.")


class ImportQuery(ClosedModel):
    """The tenant that skills are imported for."""

    tenant: Name | None = Field(None, description="The tenant that gets the skills; default: that of the key.")


@router.get("", summary="List skills")
async def latest(services: FromServices, caller: Caller, wanted: Annotated[SkillListQuery, Query()]) -> SkillPage:
    """List the skills of your tenant, newest first."""
    which = wanted.filter(wanted.before)
    found = await services.skills.catalog.latest(caller.tenant, limit=wanted.limit + 1, which=which)
    shown, more = found[: wanted.limit], len(found) > wanted.limit
    return SkillPage(shown, next=shown[-1].id if more else None)


@router.get("/search", summary="Search for skills", responses=refusals(404))
async def search(services: FromServices, caller: Caller, wanted: Annotated[SearchQuery, Query()]) -> SkillMatches:
    """Compare active skills with the text of a task, as a run of yours would, and say which it would recall."""
    return await services.skills.search(caller, wanted.query, wanted.agent, wanted.limit)


@router.get(
    "/export",
    summary="Export skills",
    response_class=Response,
    responses={200: {"content": {LINES: {"schema": _LINES_SCHEMA}}, "description": "One skill a line."}},
)
async def export(services: FromServices, caller: Caller, wanted: Annotated[SkillFilters, Query()]) -> Response:
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
async def import_skills(
    request: Request, services: FromServices, caller: Admin, actor: ChangeActor, wanted: Annotated[ImportQuery, Query()]
) -> ImportedSkills:
    """Store the skills of JSON lines, as an export gives them: all, or none if a line is wrong.

    A skill with the same calls as one in use becomes a further task of it.
    """
    tenant = wanted.tenant or caller.tenant
    return ImportedSkills(tenant, await services.skill_import.store(tenant, await request.body(), actor))


@router.get("/{skill_id}", summary="Show a skill", responses=refusals(404))
async def show(skill_id: UUID, services: FromServices, caller: Caller) -> SkillDetails:
    """Show a skill with its calls, its record, and the further tasks that it was merged with."""
    return await services.skills.show(caller.tenant, str(skill_id))


@router.post("/{skill_id}/retire", summary="Retire a skill", responses=refusals(404))
async def retire(
    skill_id: UUID, wanted: Retirement, services: FromServices, caller: Admin, actor: ChangeActor
) -> StoredSkill:
    """Take a skill out of use. Repeating the request changes the reason."""
    return await services.skills.retire(caller.tenant, str(skill_id), wanted.reason, actor)


@router.post("/{skill_id}/restore", summary="Restore a skill", responses=refusals(404, 409))
async def restore(skill_id: UUID, services: FromServices, caller: Admin, actor: ChangeActor) -> StoredSkill:
    """Take a retired or quarantined skill into use again; uses, successes and failures are counted anew.

    It becomes `suspended` if its tools aren't what they were when it was learned. 409 if another skill in use has the
    same calls.
    """
    return await services.skills.restore(caller.tenant, str(skill_id), actor)


@router.delete("/{skill_id}", status_code=204, summary="Delete a skill", responses=refusals(404))
async def delete(skill_id: UUID, services: FromServices, caller: Admin, actor: ChangeActor) -> None:
    """Delete a skill with its further tasks. A task that is solved by the same calls later makes a new one."""
    await services.skills.delete(caller.tenant, str(skill_id), actor)
