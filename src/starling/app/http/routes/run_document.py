"""Everything that is stored about a run, in one document."""

from datetime import datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from starling.app.http.dependencies import Caller, FromServices
from starling.app.http.problems import Problem
from starling.app.http.prompt_bodies import WORDING, Wording
from starling.app.http.schemas import FEEDBACK, RunFeedback, TaskSkills
from starling.core.runs import RunStatus
from starling.infra.postgres.runs.acceptance import RunKey

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses={404: {"model": Problem}, 503: {"model": Problem}})

_ID = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
_EXAMPLE: dict[str, Any] = {
    "run_id": _ID,
    "status": "succeeded",
    "thread_id": "t-1",
    "trace_id": "de2196c9a4c5d6e7f8091a2b3c4d5e6f",
    "epoch": 3,
    "correlation_id": _ID,
    "tasks": [{"id": "t1", "agent": "mcp_agent_time", "task": "What time is it in Lima?", "depends_on": []}],
    "calls": [],
    "artifacts": [],
    "behind": [],
    "waits_for": [],
    "skills": [
        {"task_id": "t1", "path": "t1", "skills": [{"id": _ID, "task": "What time is it in {city}?", "followed": True}]}
    ],
    "prompts": [WORDING],
    "build": [],
    "logs": [],
    "feedback": [FEEDBACK],
    "steps": [{"type": "plan", "description": "One task."}],
    "result": {"status": "succeeded", "reply": "It is 06:12 in Lima [1]."},
}


class KeptArtifact(BaseModel):
    """A result that was too long for a model, stored whole."""

    id: str
    name: str
    call_id: str
    media_type: str
    bytes: int
    characters: int
    created_at: datetime


class RunAhead(BaseModel):
    """An earlier run of the thread that hasn't ended."""

    run_id: str
    status: RunStatus


class RunDocument(BaseModel):
    """A run: its plan, effectful calls, what it waits for, skills that its tasks had, its steps, feedback and result.

    `prompts` are the wordings that its model calls used. `build` are the events of teams that it built: `design`,
    `checks`, `proof`, `published`; `logs` are the events `tool_log`, the first 200.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    run_id: str
    status: RunStatus
    thread_id: str
    trace_id: str
    epoch: int
    correlation_id: str
    tasks: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    artifacts: list[KeptArtifact]
    behind: list[RunAhead]
    waits_for: list[dict[str, Any]]
    skills: list[TaskSkills]
    prompts: list[Wording] = []
    build: list[dict[str, Any]] = []
    logs: list[dict[str, Any]] = []
    feedback: list[RunFeedback] = []
    steps: list[dict[str, Any]]
    result: dict[str, Any] | None


@router.get("/{run_id}/document", summary="Everything that is stored about a run", responses={422: {"model": Problem}})
async def document(run_id: UUID, services: FromServices, caller: Caller) -> RunDocument:
    """Return plan, steps, skills used, effectful calls, artifacts, open questions and result in one document."""
    return RunDocument.model_validate(await services.documents.of(RunKey(caller.tenant, str(run_id))))
