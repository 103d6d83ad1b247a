"""The example of a package with a kind of states: installed, it is known by name to the API and to programs."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.command_line import new_workspace
from tests.support.documented_commands import ROOT

EXAMPLE = ROOT / "examples" / "states"
_BY_NAME = """
import sys
import starling

client = starling.Client()
stack = starling.InteractionStack(client, "help")
print("ticket_states" in sys.modules)
print(stack.current())
print(starling.decode(starling.encode(stack.current())) == stack.current())
print(starling.render_for_llm(stack, policy_name="questions"))
client.post("/v1/agents", {"id": "desk", "behavior_template": "Help.", "render_policy": "questions"})
print(starling.AgentRegistry(client).get_agent("desk")["state"])
"""


def test_installed_package_is_known_by_name_to_the_api_and_to_programs(database_url: str, tmp_path: Path) -> None:
    install = ["scripts/uv", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*install, "--python", sys.executable, "--target", tmp_path, EXAMPLE], cwd=ROOT, check=True)
    (pushing,) = re.findall(r"```python\n(import starling\n.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)

    with (
        new_workspace(DATABASE_URL=database_url, PYTHONPATH=str(tmp_path)) as workspace,
        workspace.running("up", "--port", "0", installed=True) as service,
    ):
        token = workspace.admin_headers["Authorization"].removeprefix("Bearer ")
        environment = os.environ | {
            "PYTHONPATH": str(tmp_path),
            "STARLING_URL": service.url,
            "STARLING_API_KEY": token,
        }

        def printed(program: str) -> list[str]:
            command = [sys.executable, "-c", program.replace("http://127.0.0.1:8000", service.url)]
            done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout.splitlines()

        said = "[{'role': 'user', 'content': 'The printer is on fire.'}]"
        assert printed(pushing) == ["TicketState(ticket='T-1', priority=1)", said]
        assert printed(_BY_NAME) == ["False", "TicketState(ticket='T-1', priority=1)", "True", said, "ready"]
