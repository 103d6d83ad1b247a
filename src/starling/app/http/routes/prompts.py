"""Prompts: the wordings in force, any stored one by its hash, and what their sources have now."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from starling.app.http.dependencies import Admin, FromServices
from starling.app.http.problems import Problem
from starling.app.http.prompt_bodies import WORDING, Wording
from starling.app.http.schemas import Name

router = APIRouter(prefix="/v1/prompts", tags=["prompts"], responses={422: {"model": Problem}})

_DIFF: dict[str, Any] = {
    "changes": {
        "supervisor": {
            "before": WORDING | {"version": 3},
            "after": WORDING,
            "diff": ["--- supervisor", "+++ supervisor", "@@ -1 +1 @@", "-Plan.", "+Plan carefully."],
        }
    },
    "warnings": {"qa": "Langfuse's `agent_qa`, version 2, can't be used: It lacks the variable {{results}}."},
}


_SHOWN: dict[str, Any] = WORDING | {
    "text": "Plan. {{asking}}\n---\n<user_request>{{user_request}}</user_request>",
    "variables": ["asking", "user_request"],
    "in_force": True,
}


class PromptInForce(Wording):
    """The wording of a prompt in the active epoch; `since` is the first epoch that has it without a break."""

    model_config = ConfigDict(json_schema_extra={"examples": [WORDING | {"since": 7}]})

    since: int


class Prompts(BaseModel):
    """The prompts of the active epoch."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"epoch": 9, "prompts": [WORDING | {"since": 7}]}]})

    epoch: int
    prompts: list[PromptInForce]


class ShownPrompt(Wording):
    """A wording with its text: instructions, a line `---`, and the part with the data."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SHOWN]})

    text: str
    variables: list[str] = Field(description="The variables that a text of this prompt has to have.")
    in_force: bool = Field(description="Whether the active epoch has it.")


class PromptDifference(BaseModel):
    """What a reload would change of a prompt; `diff` are the lines of a unified diff."""

    before: Wording | None
    after: Wording
    diff: list[str]


class SourceTexts(BaseModel):
    """What the sources have and a reload would take, by prompt.

    `warnings` says, by prompt or for the source `langfuse`, why a text isn't used.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [_DIFF]})

    changes: dict[str, PromptDifference]
    warnings: dict[str, str]


class DiffQuery(BaseModel):
    """The prompt that is compared; without a name all are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name | None = None


@router.get("", summary="List prompts")
async def prompts(_: Admin, services: FromServices) -> Prompts:
    """List the prompts of the active epoch: where each text is from, its hash, and since when it is in force."""
    epoch, found = await services.prompt_catalog.list()
    return Prompts(
        epoch=epoch,
        prompts=[PromptInForce.model_validate(asdict(one.wording) | {"since": one.since}) for one in found],
    )


@router.get("/diff", summary="Compare prompts with their sources", responses={404: {"model": Problem}})
async def diff(_: Admin, services: FromServices, wanted: Annotated[DiffQuery, Query()]) -> SourceTexts:
    """Fetch the texts that the sources have now and compare them with those in force. Changes nothing."""
    return SourceTexts.model_validate(asdict(await services.prompt_catalog.diff(wanted.name)))


@router.post("/pull", summary="Fetch and store prompts")
async def pull(_: Admin, services: FromServices) -> SourceTexts:
    """Store the texts that the sources have now, and return what a reload would change.

    A reload takes them if Langfuse can't be reached then. No run gets them before that.
    """
    return SourceTexts.model_validate(asdict(await services.prompt_catalog.pull()))


@router.get("/{name}", summary="Show a prompt", responses={404: {"model": Problem}, 409: {"model": Problem}})
async def show(name: Name, _: Admin, services: FromServices) -> ShownPrompt:
    """Return the wording in force of a prompt; with the hash of a text, or its beginning, as the name that text."""
    found = await services.prompt_catalog.show(name)
    own = {"text": found.text, "variables": found.variables, "in_force": found.in_force}
    return ShownPrompt.model_validate(asdict(found.wording) | own)
