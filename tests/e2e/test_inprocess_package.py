"""The example of a package with servers in the platform's process: installed and named in `mcp.json`, agents use it."""

import subprocess
import sys
from pathlib import Path

from tests.support.command_line import new_workspace
from tests.support.documented_commands import ROOT

EXAMPLE = ROOT / "examples" / "inprocess"


def test_requests_are_answered_by_functions_and_a_server_of_an_installed_package(
    database_url: str, tmp_path: Path
) -> None:
    install = ["scripts/uv", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*install, "--python", sys.executable, "--target", tmp_path, EXAMPLE], cwd=ROOT, check=True)

    with (
        new_workspace(DATABASE_URL=database_url, PYTHONPATH=str(tmp_path)) as workspace,
        workspace.running("up", "--port", "0", "--mcp-config", EXAMPLE / "mcp.json", installed=True),
    ):
        listed = {one["name"]: one for one in workspace.json("server", "list")}
        warm = workspace.starling("ask", "Convert 20 degrees Celsius to Fahrenheit")
        grows = workspace.starling("ask", "What grows in the south bed of the garden?")

    assert {name: one["state"] for name, one in listed.items()} == {"house": "ready", "garden": "ready"}
    assert "20 °C are 68 °F" in warm.stdout, warm.stdout + warm.stderr
    assert "lavender" in grows.stdout, grows.stdout + grows.stderr
