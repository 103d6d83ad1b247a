"""The outcome of a run explained, and how a run differs from another one, in a thread: runs may have many rows."""

import asyncio
from uuid import UUID

from fastapi import APIRouter

from brain.explanation.comparison import Comparison, compare
from brain.explanation.explain import explain
from brain.explanation.shape import Explanation
from starling.app.http.dependencies import Caller, FromServices
from starling.app.http.problems import refusals
from starling.core.clock import SystemClock
from starling.infra.postgres.runs.acceptance import RunKey

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses=refusals(404, 503))


@router.get("/{run_id}/explanation", summary="Explain the outcome of a run", responses=refusals(422))
async def explanation(run_id: UUID, services: FromServices, caller: Caller) -> Explanation:
    """Return what was asked, planned and done, and the cause of what is missing, by the structure of the run.

    No model is asked. A run that has not ended is explained as far as it is. `pruned` says which rows are not kept.
    """
    document = await services.runs.documents.read(RunKey(caller.tenant, str(run_id)))
    return await asyncio.to_thread(explain, document, SystemClock().now())


@router.get("/{run_id}/comparison/{other_id}", summary="How two runs of a request differ", responses=refusals(422))
async def comparison(run_id: UUID, other_id: UUID, services: FromServices, caller: Caller) -> Comparison:
    """Return both runs side by side: requests, epochs, prompts, plans, calls, verdicts and ends."""
    keys = (RunKey(caller.tenant, str(one)) for one in (run_id, other_id))
    first, second = [await services.runs.documents.read(key) for key in keys]
    return await asyncio.to_thread(compare, first, second)
