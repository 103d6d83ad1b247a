"""Log lines of a platform in production."""

import json
import signal
from typing import Any

from tests.support.command_line import SYSTEM_HEALTH, Service, new_workspace, server_file
from tests.support.gateway_harness import free_port

_SECRETS = {
    "OPENAI_API_KEY": "canary-of-openai",
    "LANGFUSE_PUBLIC_KEY": "pk-lf-public",
    "LANGFUSE_SECRET_KEY": "sk-lf-canary-of-langfuse",
}


def lines(service: Service) -> list[dict[str, Any]]:
    """Stop a service and return its log; every line of it has to be a JSON object."""
    service.process.send_signal(signal.SIGTERM)
    assert service.process.stderr is not None
    return [json.loads(line) for line in service.process.stderr.read().splitlines()]


def test_log_lines_are_json_with_run_ids_and_without_secrets() -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    services = {"CONTEXT_SERVICE_URL": nobody, "LANGFUSE_HOST": nobody}
    with new_workspace(LOG_LEVEL="DEBUG", **_SECRETS, **services) as workspace:
        file = server_file(workspace, system_health=SYSTEM_HEALTH, gone={"command": "no-such-command"})
        with workspace.running("up", "--mcp-config", file, "--port", "0") as platform:
            asked = workspace.starling("ask", "How full is the disk?", "--url", platform.url, "--json")
            workspace.starling("ask", "What is the capital of France?", "--url", platform.url)
            log = lines(platform)

    started = json.loads(asked.stdout.splitlines()[0])
    claimed, _ = [line for line in log if line["event"] == "run claimed"]
    ended, failed = [line for line in log if line["event"] == "run ended"]
    request, _ = [line for line in log if line["event"] == "request" and line["method"] == "POST"]
    assert asked.returncode == 0, asked.stderr
    assert [ended[name] for name in ("run_id", "tenant", "trace_id", "correlation_id")] == [
        started["run_id"], "default", started["trace_id"], started["correlation_id"],
    ]  # fmt: skip
    assert (ended["status"], ended["code"], ended["level"]) == ("succeeded", None, "info")
    assert (failed["status"], failed["code"]) == ("failed", "no_result")
    assert (claimed["run_id"], claimed["claim"], claimed["crashes"]) == (started["run_id"], 1, 0)
    assert (request["path"], request["status"], request["tenant"]) == ("/v1/agent/run", 200, "default")
    assert (request["run_id"], request["level"]) == (started["run_id"], "debug")
    assert any("no-such-command" in line["event"] and line["level"] == "warning" for line in log)
    assert [secret for secret in _SECRETS.values() if secret in json.dumps(log) and "canary" in secret] == []
