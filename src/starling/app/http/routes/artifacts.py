"""Artifacts of a run: results that were too long for a model, listed and sent whole."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, Path, Response
from pydantic import BaseModel

from starling.app.http.dependencies import Caller, FromServices
from starling.app.http.problems import refusals
from starling.core.artifacts import Artifact, MediaType
from starling.infra.postgres.runs.acceptance import RunKey

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses=refusals(404, 422, 503))

_ENDINGS: dict[MediaType, str] = {"text/plain": "txt", "application/json": "json"}
_NAME_CHARS = 12  # of an id, in a file's name
_HEADERS = {"ETag": {"description": "The artifact's id: its content never changes.", "schema": {"type": "string"}}}

type ArtifactId = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="SHA-256 of its content.")]
type Known = Annotated[str, Header(description="The `ETag` of an earlier response.")]


class RunArtifacts(BaseModel):
    """A run's artifacts in the order of storage: one per call, also where contents are equal."""

    artifacts: Sequence[Artifact]


@router.get("/{run_id}/artifacts", summary="List a run's artifacts")
async def artifacts(run_id: UUID, services: FromServices, caller: Caller) -> RunArtifacts:
    """List the artifacts of a run: whole results of which models saw only the beginning."""
    key = RunKey(caller.tenant, str(run_id))
    await services.runs.documents.row(key)  # 404 for a run that isn't there
    return RunArtifacts(artifacts=await services.storage.artifacts.of_run(key.tenant, key.id))


@router.get(
    "/{run_id}/artifacts/{artifact}",
    summary="A whole result",
    response_class=Response,
    responses={
        200: {
            "description": "The content as an attachment: it is the unchecked output of an MCP server.",
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                "application/json": {"schema": {"examples": [{"rows": []}]}},
            },
            "headers": _HEADERS,
        },
        304: {"description": "You have it."},
    },
)
async def content(
    run_id: UUID, artifact: ArtifactId, services: FromServices, caller: Caller, if_none_match: Known = ""
) -> Response:
    """Send the tool's result unchanged, except for characters that Postgres cannot store."""
    found = await services.storage.artifacts.read(caller.tenant, str(run_id), artifact)
    headers = _headers(artifact, found.media_type)
    known = {tag.strip().removeprefix("W/").strip('"') for tag in if_none_match.split(",")}
    if known & {artifact, "*"}:
        return Response(status_code=304, headers=headers)
    return Response(found.text.encode(), headers=headers, media_type=found.media_type)


def _headers(artifact: str, media_type: MediaType) -> dict[str, str]:
    """Return headers that keep browsers from executing the content, guessing its type or showing it on our origin."""
    return {
        "ETag": f'"{artifact}"',
        "Cache-Control": "private, max-age=31536000, immutable",
        "Content-Disposition": f'attachment; filename="{artifact[:_NAME_CHARS]}.{_ENDINGS[media_type]}"',
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
