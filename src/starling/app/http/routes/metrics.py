"""Metrics, for Prometheus to collect."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_LATEST

from starling.app.http.app_state import FromAppState
from starling.app.http.authentication import RequireScope
from starling.core.principal import Principal, Scope

router = APIRouter(tags=["health"])
type _Admin = Annotated[Principal, Depends(RequireScope(Scope.ADMIN))]


@router.get(
    "/metrics",
    summary="Metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Metrics in Prometheus' text format."}},
)
async def metrics(api: FromAppState, _: _Admin) -> Response:
    """Return the metrics of this process and of the database; 200 also while Postgres is away."""
    return Response(await api.storage.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})
