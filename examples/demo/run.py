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
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = Path(os.environ.get("STARLING_DEMO_CACHE") or ROOT / ".cache/demo")
REQUEST = f"What time is it in Lima, how full is this disk, and list the last 3 commits of {ROOT}."
SIMILAR = f"What time is it in Cairo, and list the last 5 commits of {ROOT}."
GOAL = "A team that watches the disk and the memory of this machine"
CASES = HERE / "cases.yaml"
OFFLINE = "offline:rules"
TOGETHER = "How full is the disk, and how much memory is free?"
STARLING = Path(sys.executable).with_name("starling")
BOLD, RED, GREEN = 1, 31, 32  # codes of a terminal
STOP_SECONDS = 60
NOT_OURS = ("DATABASE_URL", "DATABASE_DIRECT_URL", "STARLING_DATA_DIR", "STARLING_HOST", "STARLING_MCP_CONFIG")
PR_SET_PDEATHSIG = 1


class DemoError(Exception):
    """The demo can't go on."""


@contextmanager
def platform() -> Generator[dict[str, Any]]:
    """Run `starling up` for as long as the context lasts; gives what it says when it is ready."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(
        [STARLING, "up", "--json", "--port=0", f"--mcp-config={HERE / 'mcp.json'}"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=CACHE,
        env=environment(),
        preexec_fn=die_with_parent,  # noqa: PLW1509 - there are no threads yet
    ) as process:
        try:
            print("Starting the platform ...", file=sys.stderr, flush=True)
            yield ready(process)
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
        raise DemoError("The platform didn't start; it says why above.")
    return json.loads(line)


def introduce(started: dict[str, Any]) -> None:
    """Say what runs, and how the servers are."""
    models = ", ".join(dict.fromkeys(started["models"].values()))
    say(f"Starling {started['version']} at {started['address']}, model {models}, epoch {started['epoch']}", BOLD)
    for server in started["servers"]:
        trouble = f": {server['error']} {server['remedy']}" if server["error"] else ""
        say(f"  {server['name']}: {server['state']}, {server['tools']} tools{trouble}")


def say(text: str, style: int = 0) -> None:
    """Print a line, on a terminal in a style."""
    print(f"\033[{style}m{text}\033[0m" if style and sys.stdout.isatty() else text, flush=True)


def starling(*arguments: str) -> subprocess.Popen[str]:
    """Start a command that asks the platform; its output can be read."""
    command: Sequence[str | Path] = [STARLING, *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=CACHE, env=environment()
    )


def show(*arguments: str) -> bool:
    """Print the output of a command as it comes, and return whether it succeeded."""
    with starling(*arguments) as command:
        assert command.stdout is not None
        for line in command.stdout:
            print(line, end="", flush=True)
    return command.returncode == 0


def documents(*arguments: str) -> list[Any]:
    """Return the lines of JSON that a command prints."""
    with starling(*arguments, "--json") as command:
        assert command.stdout is not None
        return [json.loads(line) for line in command.stdout]


def ask(text: str) -> frozenset[str]:
    """Send the request and show its stream, then the skills that its tasks used.

    Return the agents with an approved result, none where the run failed.
    """
    say(f"\n> {text}\n", BOLD)
    if not show("ask", text, "--thread", f"demo-{os.getpid()}"):
        return frozenset()
    results = [event for event in documents("run", "tail", "last") if event["type"] == "task_result"]
    for skill in (skill for result in results for skill in result.get("skills", ()) if skill["followed"]):
        say(f"Skill used: {skill['task']}", GREEN)
    latest = {result["path"]: result for result in results if "/" not in result["path"]}  # of the run's own plan
    return frozenset(result["agent"] for result in latest.values() if result["status"] == "approved")


def build(models: Collection[str]) -> str:
    """Have a team built, show its proof, and return its name, which is empty where there is none.

    `offline:rules` writes no cases to try a team on, so two are sent: texts that its answers have. A model writes its
    own, and answers in other words.
    """
    say(f"\n> team build: {GOAL}\n", BOLD)
    cases = ["--case", str(CASES)] if {*models} == {OFFLINE} else []
    if not show("team", "build", GOAL, *cases, "--yes"):
        return ""
    published = [event for event in documents("run", "tail", "last") if event["type"] == "published"]
    for event in published:
        say("")
        show("team", "show", f"{event['team']}@{event['version']}", "--proof")
    return published[0]["team"] if published else ""


def tour(models: Collection[str]) -> bool:
    """Show requests to specialists, then a team from its goal to a request. Return whether all succeeded."""
    for team in documents("team", "list")[0]:  # those of earlier demos: requests are not to be given to them
        if team["state"] == "active":
            documents("team", "archive", team["name"], "--yes")
    asked = [is_joint(ask(text)) for text in (REQUEST, SIMILAR)]
    team = build(models)
    named = "" if {*models} == {OFFLINE} else f"Use {team}: "  # a model may prefer the specialist of the same server
    return all(asked) and bool(team) and team in ask(named + TOGETHER)


def is_joint(agents: frozenset[str]) -> bool:
    """Whether at least two specialists contributed."""
    return sum(name.startswith("mcp_agent_") for name in agents) >= 2


def main(arguments: Sequence[str]) -> int:
    """Return 0 where each run succeeded, and at least two specialists or the team contributed to its answer."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with platform() as started:
            introduce(started)
            done = is_joint(ask(" ".join(arguments))) if arguments else tour(started["models"].values())
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except DemoError as error:
        say(str(error), RED)
        return 1
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
