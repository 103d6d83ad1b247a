"""Artifacts of a run: results that were too long for a model, and binary ones, listed and sent whole."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, Path, Response
from pydantic import BaseModel

from starling.app.http.dependencies import Caller, FromServices
from starling.app.http.problems import refusals
from starling.core.artifacts import Artifact, ArtifactContent, image_type
from starling.infra.postgres.runs.acceptance import RunKey

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses=refusals(404, 422, 503))

_ENDINGS = {  # of files; others are `.bin`
    "text/plain": "txt", "application/json": "json", "application/pdf": "pdf", "audio/mpeg": "mp3",
    "image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "audio/wav": "wav",
}  # fmt: skip
_NAME_CHARS = 12  # of an id, in a file's name
_HEADERS = {"ETag": {"description": "The artifact's id: its content never changes.", "schema": {"type": "string"}}}

type ArtifactId = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="SHA-256 of its content.")]
type Known = Annotated[str, Header(description="The `ETag` of an earlier response.")]


class RunArtifacts(BaseModel):
    """A run's artifacts in the order of storage: one per call, also where contents are equal."""

    artifacts: Sequence[Artifact]


@router.get("/{run_id}/artifacts", summary="List a run's artifacts")
async def artifacts(run_id: UUID, services: FromServices, caller: Caller) -> RunArtifacts:
    """List the artifacts of a run: results of which models saw only the beginning, and binary parts of results."""
    key = RunKey(caller.tenant, str(run_id))
    await services.runs.documents.row(key)  # 404 for a run that isn't there
    return RunArtifacts(artifacts=await services.storage.artifacts.of_run(key.tenant, key.id))


@router.get(
    "/{run_id}/artifacts/{artifact}",
    summary="A whole result",
    response_class=Response,
    responses={
        200: {
            "description": "The content as an attachment: it is the unchecked output of an MCP server. "
            "Only PNG, JPEG, GIF and WebP images are shown inline.",
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                "application/json": {"schema": {"examples": [{"rows": []}]}},
                "*/*": {"schema": {"type": "string", "format": "binary", "examples": ["GIF89a"]}},
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
    headers = _headers(artifact, found)
    known = {tag.strip().removeprefix("W/").strip('"') for tag in if_none_match.split(",")}
    if known & {artifact, "*"}:
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers=headers)


def _headers(artifact: str, found: ArtifactContent) -> dict[str, str]:
    """Return headers that keep browsers from executing the content, guessing its type or showing it on our origin.

    Images are shown if the first bytes are those of their media type.
    """
    name = f"{artifact[:_NAME_CHARS]}.{_ENDINGS.get(found.media_type, 'bin')}"
    shown = "inline" if image_type(found.content) == found.media_type else "attachment"
    charset = "; charset=utf-8" if found.media_type == "text/plain" else ""
    return {
        "Content-Type": f"{found.media_type}{charset}",
        "ETag": f'"{artifact}"',
        "Cache-Control": "private, max-age=31536000, immutable",
        "Content-Disposition": f'{shown}; filename="{name}"',
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
