"""Metrics, for Prometheus to collect."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from starling.app.http.dependencies import Admin, FromServices

router = APIRouter(tags=["health"])


@router.get(
    "/metrics",
    summary="Metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Metrics in Prometheus' text format."}},
)
async def metrics(services: FromServices, _: Admin) -> Response:
    """Return the metrics of this process and of the database; 200 also while Postgres is away."""
    return Response(await services.metrics_exporter.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})
