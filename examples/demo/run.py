"""Starts the platform, sends it a request that several specialists have to solve, then a similar one, and stops.

The second request uses skills: what solved the tasks of the first one. Then a team is built for a goal, its proof is
shown, and it gets a request.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starling.app.access.local_token import read_token
from starling.app.cli.platform.api_client import ApiClient
from starling.app.cli.platform.api_requests import ApiRequests
from starling.app.cli.platform.api_source import ApiSource
from starling.app.cli.platform.run_source import StreamedEvent
from starling.app.cli.run.conversation import Conversation
from starling.app.cli.signals import StoppedBySignal, install_signal_handlers
from starling.app.cli.terminal.build_text import print_lines, proof_report_lines
from starling.app.cli.terminal.output import diagnostics, print_line, progress, results, write
from starling.app.cli.terminal.prompts import Answer, FixedAnswers
from starling.app.cli.terminal.run_display import RunDisplay
from starling.core.errors import StarlingError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = Path(os.environ.get("STARLING_DEMO_CACHE") or ROOT / ".cache/demo")
REQUEST = f"What time is it in Lima, how full is this disk, and list the last 3 commits of {ROOT}."
SIMILAR = f"What time is it in Cairo, and list the last 5 commits of {ROOT}."
GOAL = "A team that watches the disk and the memory of this machine"
USE = "Use {}: How full is the disk?"
STOP_SECONDS = 60
NOT_OURS = ("DATABASE_URL", "DATABASE_DIRECT_URL", "STARLING_DATA_DIR", "STARLING_HOST", "STARLING_MCP_CONFIG")
PR_SET_PDEATHSIG = 1


@contextmanager
def platform() -> Generator[dict[str, Any]]:
    """Run `starling up` for as long as the context lasts; gives what it says when it is ready."""
    CACHE.mkdir(parents=True, exist_ok=True)
    starling = Path(sys.executable).with_name("starling")
    with subprocess.Popen(
        [starling, "up", "--json", "--port=0", f"--mcp-config={HERE / 'mcp.json'}"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=CACHE,
        env=environment(),
        preexec_fn=die_with_parent,  # noqa: PLW1509 - there are no threads yet
    ) as process:
        try:
            if not diagnostics().is_terminal:
                write(diagnostics(), "Starting the platform ...\n")
            with progress("Starting the platform …"):
                started = ready(process)
            yield started
        finally:
            process.terminate()
            process.wait(STOP_SECONDS)


def environment() -> dict[str, str]:
    """Return our environment, so that a model's key counts, with folders and a database of the demo's own."""
    kept = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
    ours = {
        "STARLING_DEMO_ROOT": str(ROOT),
        "STARLING_DEMO_PYTHON": sys.executable,
        "XDG_DATA_HOME": str(CACHE),  # a default, so that root's Postgres may move out of folders that it can't reach
    }
    return {"LOG_LEVEL": "WARNING", **kept, **ours}


def die_with_parent() -> None:
    """Have the platform stop even where this process is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def ready(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for the line that says what runs."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise StarlingError("The platform didn't start; it says why above.")
    return json.loads(line)


def introduce(started: dict[str, Any]) -> None:
    """Say what runs, and how the servers are."""
    models = ", ".join(dict.fromkeys(started["models"].values()))
    print_line(
        f"Starling {started['version']} at {started['address']}, model {models}, epoch {started['epoch']}", "bold"
    )
    for server in started["servers"]:
        trouble = f": {server['error']} {server['remedy']}" if server["error"] else ""
        print_line(f"  {server['name']}: {server['state']}, {server['tools']} tools{trouble}")


@dataclass(slots=True)
class Outcome:
    """How a run ended, and which agents had a task approved."""

    status: str = ""
    agents: set[str] = field(default_factory=set[str])

    def take(self, event: StreamedEvent) -> None:
        """Take the next event."""
        if event.type == "task_result" and event.data["status"] == "approved" and "/" not in event.data["path"]:
            self.agents.add(event.data["agent"])
        elif event.type == "done":
            self.status = event.data["status"]


def ask(address: str, text: str) -> Outcome:
    """Send the request and show its stream, then the skills that its tasks used."""
    print_line(f"\n> {text}\n", "bold")
    display, outcome = RunDisplay(results()), Outcome()
    used: list[str] = []
    for event in ApiClient(address).ask({"input": text, "thread_id": f"demo-{os.getpid()}"}):
        display.feed(event.seq, event.type, event.data)
        outcome.take(event)
        if event.type == "task_result":
            used += [skill["task"] for skill in event.data.get("skills", ()) if skill["followed"]]
    for task in used:
        print_line(f"Skill used: {task}", "green")
    return outcome


class Approving(FixedAnswers):
    """Approves the activation of the team where a proof doesn't suffice, and leaves questions to the run."""

    def answer(self, kind: str, _: Mapping[str, Any]) -> Answer:
        """Return the answer to an interrupt."""
        return super().answer(kind, _) or {"status": "cancelled", "payload": {}}


def archive_teams(api: ApiRequests) -> None:
    """Archive the teams of earlier demos: requests are not to be given to them."""
    for team in api.get("/v1/teams")["teams"]:
        if team["state"] == "active":
            api.post(f"/v1/teams/{team['name']}/archive")


def build(api: ApiRequests) -> tuple[Outcome, str]:
    """Have a team built, show its proof, and return its name, which is empty where there is none."""
    print_line(f"\n> team build: {GOAL}\n", "bold")
    client, outcome = ApiClient(api.url, api.key), Outcome()
    talk = Conversation(ApiSource(api, lambda: client), RunDisplay(results()), Approving(approve=True))
    talk.run_id = str(client.start("/v1/teams", {"goal": GOAL})["run_id"])
    name, number = "", 0
    for event in client.follow(talk.run_id, 0):
        talk.event(event)
        outcome.take(event)
        if event.type == "published":
            name, number = event.data["team"], event.data["version"]
    if name:
        print_line()
        print_lines(proof_report_lines(f"{name}@{number}", api.get(f"/v1/teams/{name}/versions/{number}/proof")))
    return outcome, name


def tour(address: str) -> bool:
    """Show requests to specialists, then a team from its goal to a request. Return whether all succeeded."""
    api = ApiRequests(address, read_token(CACHE / "starling"))  # of its data folder, as commands send it
    archive_teams(api)
    asked = [ask(address, text) for text in (REQUEST, SIMILAR)]
    built, team = build(api)
    used = ask(address, USE.format(team)) if team else built
    by_team = built.status == used.status == "succeeded" and team in used.agents
    return all(map(is_joint_success, asked)) and by_team


def main(arguments: Sequence[str]) -> int:
    """Return 0 where each run succeeded, and at least two specialists or the team contributed to its answer."""
    install_signal_handlers()
    try:
        with platform() as started:
            introduce(started)
            address = started["address"]
            done = is_joint_success(ask(address, " ".join(arguments))) if arguments else tour(address)
    except StoppedBySignal as stopped:
        return stopped.exit_code
    except StarlingError as error:
        print_line(str(error), "red")
        return 1
    return 0 if done else 1


def is_joint_success(outcome: Outcome) -> bool:
    """Whether a run succeeded with results of at least two specialists."""
    specialists = [name for name in outcome.agents if name.startswith("mcp_agent_")]
    return outcome.status == "succeeded" and len(specialists) >= 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
