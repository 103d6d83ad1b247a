"""Prompts: the wordings in force, any stored one by its hash, and what their sources have now."""

from typing import Annotated

from fastapi import APIRouter, Query

from starling.app.http.dependencies import Admin, FromServices
from starling.app.http.problems import refusals
from starling.app.http.schemas import ClosedModel, Name
from starling.app.registry.prompts import PromptList, ShownPrompt, SourceTexts

router = APIRouter(prefix="/v1/prompts", tags=["prompts"], responses=refusals(422))


class PromptQuery(ClosedModel):
    """The prompt that is compared; without a name all are."""

    name: Name | None = None


@router.get("", summary="List prompts")
async def prompts(_: Admin, services: FromServices) -> PromptList:
    """List the prompts of the active epoch: where each text is from, its hash, and since when it is in force."""
    return await services.prompt_catalog.list()


@router.get("/diff", summary="Compare prompts with their sources", responses=refusals(404))
async def diff(_: Admin, services: FromServices, wanted: Annotated[PromptQuery, Query()]) -> SourceTexts:
    """Fetch the texts that the sources have now and compare them with those in force. Changes nothing."""
    return await services.prompt_catalog.diff(wanted.name)


@router.post("/pull", summary="Fetch and store prompts")
async def pull(_: Admin, services: FromServices) -> SourceTexts:
    """Store the texts that the sources have now, and return what a reload would change.

    A reload takes them if Langfuse can't be reached then. No run gets them before that.
    """
    return await services.prompt_catalog.pull()


@router.get("/{name}", summary="Show a prompt", responses=refusals(404, 409))
async def show(name: Name, _: Admin, services: FromServices) -> ShownPrompt:
    """Return the wording in force of a prompt; with the hash of a text, or its beginning, as the name that text."""
    return await services.prompt_catalog.show(name)
