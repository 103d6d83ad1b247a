"""Metrics of a worker process."""

import aiohttp

from tests.support.command_line import new_workspace


async def test_worker_serves_metrics_of_its_runs(database_url: str) -> None:
    with (
        new_workspace(DATABASE_URL=database_url, STARLING_WORKER_PORT="0") as workspace,
        workspace.running("serve", "--port", "0") as api,
        workspace.running("worker") as worker,
    ):
        asked = workspace.starling("ask", "Hello", "--url", api.url)
        async with aiohttp.ClientSession(worker.url, headers=workspace.admin_headers) as client:
            async with client.get("/metrics") as response:
                metrics = await response.text()
            async with client.get("/health") as response:
                health = response.status

    assert asked.returncode == 0, asked.stderr
    assert 'starling_runs_ended_total{status="succeeded"} 1.0' in metrics
    assert health == 200
