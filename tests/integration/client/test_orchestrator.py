"""One request from Python, over HTTP and with the platform in the process of the program."""

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from starling.client.conversations import Client
from starling.client.orchestrator import OrchestratorResult
from tests.integration.http.conftest import SERVERS, running_api
from tests.support.local_access import TOKEN
from tests.support.open_folder import new_open_folder

PROGRAM = """
import json, starling
with starling.in_process() as client:
    result = starling.Orchestrator(client).handle_user_request("laptop", "How full is this disk?", "MODERATE", "CHAT")
    print(json.dumps([result, client.get("/v1/threads/laptop")]))
"""


@pytest.fixture(scope="module")
def client(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[Client]:
    folder = tmp_path_factory.mktemp("api")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(running_api(module_database_url, folder, SERVERS)) as api,
        closing(Client(api.url, TOKEN)) as client,
    ):
        yield client


def assert_answered(result: OrchestratorResult, thread: Any) -> None:
    """The disk was looked at: the steps say who was asked, and the session has counted them."""
    by_type = {step["type"]: step["metadata"] for step in result["steps"]}
    used, plan = thread["session_metrics"], thread["last_plan"]
    asked = sum(step["type"] == "llm_call" for step in result["steps"])
    assert result["trace_id"]
    assert by_type["tool_call"]["tool_name"].startswith("system_health.")
    assert (by_type["tool_call"]["is_error"], by_type["llm_call"]["model_role"]) == (False, "reasoning")
    assert (used["runs"], used["model_calls"], used["tool_calls"], used["errors"]) == (1, asked, 1, 0)
    assert [(one["agent"], one["status"]) for one in plan["tasks"]] == [("mcp_agent_system_health", "approved")]


def test_request_in_process_is_answered_without_an_address(empty_database_url: str) -> None:
    with new_open_folder() as folder:
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": SERVERS}))
        environment = {"DATABASE_URL": empty_database_url, "STARLING_DATA_DIR": str(folder / "data"), "PATH": ""}
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True
        )

    result, thread = json.loads(done.stdout)
    assert_answered(result, thread)
