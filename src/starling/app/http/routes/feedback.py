"""Feedback on runs."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from starling.app.http.dependencies import Caller, ChangeActor, FromServices
from starling.app.http.problems import refusals
from starling.app.http.schemas import ClosedModel
from starling.core.json import storable_text
from starling.core.run_document.document import Feedback
from starling.core.secrets.look_alikes import mask_keys
from starling.infra.postgres.runs.acceptance import RunKey

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses=refusals(404, 503))

_COMMENT_CHARS = 2_000


class FeedbackRequest(ClosedModel):
    """What you say of a run."""

    score: Annotated[float, Field(ge=0, le=1, description="From 0, useless, to 1, as it should be.")]
    comment: Annotated[str, Field(max_length=_COMMENT_CHARS)] = ""


@router.post("/{run_id}/feedback", summary="Give feedback on a run", responses=refusals(422))
async def give(
    run_id: UUID, feedback: FeedbackRequest, services: FromServices, caller: Caller, actor: ChangeActor
) -> Feedback:
    """Store your feedback on a run of your tenant, in place of an earlier one by the same key.

    Where Langfuse is configured, it is the score `user_feedback` of the run's trace.
    """
    comment = mask_keys(storable_text(feedback.comment))
    return await services.runs.feedback.give(RunKey(caller.tenant, str(run_id)), feedback.score, comment, actor)
