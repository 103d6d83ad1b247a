"""The models that OpenAI's clients can name."""

from collections.abc import Sequence
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from starling.app.http.dependencies import Caller, FromServices
from starling.app.http.problems import refusals

router = APIRouter(prefix="/v1/models", tags=["openai"], responses=refusals(503))


class Model(BaseModel):
    """The main star, an agent or a team."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "starling"


class ModelList(BaseModel):
    """All models that your key may use."""

    object: Literal["list"] = "list"
    data: Sequence[Model]


@router.get("", summary="List models")
async def models(services: FromServices, caller: Caller) -> ModelList:
    """List `starling`, and the agents and teams that your key may use."""
    return ModelList(data=[Model(id=name) for name in await services.chats.models(caller)])


@router.get("/{model}", summary="Show a model", responses=refusals(404))
async def model(model: str, services: FromServices, caller: Caller) -> Model:
    """Show a model."""
    await services.chats.check_model(caller, model)
    return Model(id=model)
