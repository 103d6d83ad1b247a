"""What the metrics say of a request."""

import pytest
from starlette.types import Receive, Scope, Send

from starling.app.http.request_telemetry import TelemetryMiddleware
from starling.app.telemetry.metrics import Metrics


async def test_request_that_an_error_ended_counts_as_answered_with_500() -> None:
    async def failing(_: Scope, __: Receive, ___: Send) -> None:
        raise RuntimeError("boom")

    metrics = Metrics()
    with pytest.raises(RuntimeError):
        await TelemetryMiddleware(failing, metrics)(_SCOPE, _no_message, _no_answer)

    counted = [
        line for line in metrics.text().decode().splitlines() if line.startswith("starling_http_requests_total{")
    ]
    assert counted == ['starling_http_requests_total{method="GET",route="none",status="500"} 1.0']


_SCOPE: Scope = {"type": "http", "method": "GET", "path": "/health", "headers": []}


async def _no_message() -> dict[str, str]:
    return {"type": "http.disconnect"}


async def _no_answer(_: object) -> None:
    pass
