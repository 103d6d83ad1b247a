"""The command line: services, `ask`, `run`, `server`, `switch` and `db` commands, and their errors."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.command_line import (
    STARLING,
    SYSTEM_HEALTH,
    CliWorkspace,
    Process,
    Service,
    new_workspace,
    server_file,
)
from tests.support.gateway_harness import SERVERS
from tests.support.model_script import Answer, Rule
from tests.support.model_server import model_process, model_variables

_QUESTION = "How full is this disk, and how much memory is in use?"


@pytest.fixture(scope="module")
def workspace() -> Generator[CliWorkspace]:
    with new_workspace() as workspace:
        yield workspace


@pytest.fixture(scope="module")
def platform(workspace: CliWorkspace) -> Generator[Service]:
    """`starling up` with an embedded Postgres, one good server and one that can't be started."""
    file = server_file(workspace, system_health=SYSTEM_HEALTH, broken={"command": "no-such-command"})
    with workspace.running("up", "--port", "0", "--mcp-config", file) as service:
        yield service


@pytest.fixture
def own_workspace(database_url: str) -> Generator[CliWorkspace]:
    """A workspace with a migrated database of this test's own."""
    with new_workspace(DATABASE_URL=database_url) as workspace:
        yield workspace


def test_help_imports_nothing_that_only_commands_need() -> None:
    program = (
        "import sys; from starling.app.cli.root_command import app; app(['--help'], standalone_mode=False);"
        "print({'fastapi', 'sqlalchemy', 'mcp', 'langgraph', 'httpx', 'psycopg'} & sys.modules.keys(), file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "ask" in done.stdout
    assert done.stderr.strip() == "set()"


def test_installed_command_prints_its_version() -> None:
    assert subprocess.check_output([STARLING, "--version"], text=True).startswith("starling 0.")


def test_up_reports_servers_models_and_epoch(platform: Service) -> None:
    servers = {server["name"]: server for server in platform.said["servers"]}

    assert set(platform.said["models"].values()) == {"offline:rules"}
    assert platform.said["epoch"] == 1
    assert platform.said["seconds"].keys() == {"imports", "database", "schema", "servers", "API"}
    assert servers["system_health"]["state"] == "ready"
    assert servers["broken"]["state"] == "degraded"
    assert "no-such-command" in servers["broken"]["error"]
    assert servers["broken"]["remedy"]


def test_status_shows_the_platform_of_the_data_folder(workspace: CliWorkspace, platform: Service) -> None:
    done = workspace.starling("status")
    shown = json.loads(workspace.starling("status", "--json").stdout)

    assert done.returncode == 0
    assert f"runs at {platform.url}" in done.stdout
    assert "1 ready, degraded: broken" in done.stdout
    assert done.stdout.endswith(", of the tenant default\n")
    assert (shown["running"], shown["ready"], shown["address"]) == (True, True, platform.url)
    assert (shown["pid"], shown["database"]) == (platform.process.pid, "embedded")
    assert shown["servers"] == {"ready": 1, "degraded": ["broken"]}
    assert shown["runs"].keys() == {"running", "waiting", "queued"}


def test_run_list_of_a_tenant_without_runs_names_the_tenant(workspace: CliWorkspace, platform: Service) -> None:
    done = workspace.starling("run", "list", "--tenant", "nobody")

    assert platform.url
    assert done.stdout.startswith("The tenant nobody has no runs yet.")


def test_status_without_a_platform_says_how_to_start_one() -> None:
    with new_workspace() as workspace:
        done = workspace.starling("status")

    assert done.returncode == 3
    assert done.stdout == f"Starling does not run on {workspace.folder}/data. `starling up` starts it.\n"


def test_ask_prints_plan_calls_verdicts_answer_and_sources(workspace: CliWorkspace, platform: Service) -> None:
    done = workspace.starling("ask", _QUESTION, "--url", platform.url)

    assert done.returncode == 0, done.stderr
    for part in ("Plan", "mcp_agent_system_health", "calls system_health.disk(", "APPROVED", "Answer", "Sources"):
        assert part in done.stdout
    assert "Succeeded:" in done.stdout.splitlines()[-1]
    assert "\x1b" not in done.stdout


def test_ask_json_prints_one_event_per_line(workspace: CliWorkspace, platform: Service) -> None:
    done = workspace.starling("ask", "-", "--json", stdin=_QUESTION)
    events = [json.loads(line) for line in done.stdout.splitlines()]

    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert (events[0]["type"], events[-1]["type"]) == ("run_started", "done")


def test_run_commands_list_show_and_tail_a_run(workspace: CliWorkspace, platform: Service) -> None:
    workspace.starling("ask", _QUESTION, "--url", platform.url, "--thread", "looked-at")

    run = next(run for run in workspace.json("run", "list") if run["thread_id"] == "looked-at")
    shown = workspace.json("run", "show", run["id"])
    told = workspace.starling("run", "tail", run["id"])
    rest = workspace.starling("run", "tail", run["id"], "--after", "3", "--json")

    ending = run["id"].replace("-", "")[-8:]
    assert ending in workspace.starling("run", "list").stdout
    assert run["id"] in workspace.starling("run", "list", "--full").stdout
    assert f"run_id     {run['id']}" in workspace.starling("run", "show", ending).stdout
    assert run["status"] == shown["status"] == shown["result"]["status"] == "succeeded"
    assert [task["agent"] for task in shown["tasks"]] == ["mcp_agent_system_health"] * len(shown["tasks"])
    assert [call["role"] for call in shown["decisions"]]
    assert told.returncode == 0
    assert "Succeeded:" in told.stdout
    assert json.loads(rest.stdout.splitlines()[0])["seq"] == 4
    assert shown["result"]["reply"].splitlines()[0] in workspace.starling("run", "show", run["id"]).stdout


def test_runs_of_another_tenant_need_the_tenant_option(workspace: CliWorkspace, platform: Service) -> None:
    key = workspace.json("key", "create", "shop", "--tenant", "shop")["key"]
    replace(workspace, variables={**workspace.variables, "STARLING_API_KEY": key}).starling(
        "ask", "Hi.", "--url", platform.url
    )

    (run,) = workspace.json("run", "list", "--tenant", "shop")
    shown = workspace.json("run", "show", run["id"], "--tenant", "shop")
    told = workspace.starling("run", "tail", run["id"], "--tenant", "shop")
    unknown = [workspace.starling("run", command, run["id"]) for command in ("show", "tail")]

    assert run["id"] not in {listed["id"] for listed in workspace.json("run", "list")}
    assert shown["status"] == run["status"] == "succeeded"
    assert "Succeeded:" in told.stdout
    assert [done.returncode for done in unknown] == [2, 2]
    assert all("There is no run" in done.stderr for done in unknown)


def test_server_commands_list_and_show(workspace: CliWorkspace, platform: Service) -> None:
    assert platform.said["epoch"]

    listed = workspace.starling("server", "list")
    shown = workspace.json("server", "show", "system_health")

    assert "broken\tdegraded\t0\tfile" in listed.stdout
    assert {tool["name"]: tool["effect"] for tool in shown["tools"]}["disk"] == "read"


def test_server_is_added_used_tested_and_removed_on_a_running_platform(
    workspace: CliWorkspace, platform: Service
) -> None:
    record = workspace.folder / "record"
    command = ("--", sys.executable, SERVERS / "recording.py", record)

    added = workspace.json("server", "add", "recorder", "--effect", "read", *command)
    asked = workspace.starling("ask", "Record the text 'kept'", "--url", platform.url)
    tested = workspace.json("server", "test", "recorder")
    removed = workspace.json("server", "remove", "recorder")

    assert added["epoch"] > platform.said["epoch"]
    assert asked.returncode == 0, asked.stdout
    assert "kept" in record.read_text()
    assert set(tested["tools"]) == set(added["tools"])
    assert tested["changed"] == []
    assert removed["epoch"] > added["epoch"]
    assert "recorder" not in workspace.starling("server", "list").stdout


def test_server_that_cannot_start_is_not_added(workspace: CliWorkspace, platform: Service) -> None:
    assert platform.said["epoch"]

    done = workspace.starling("server", "add", "nothing", "--", "no-such-command")

    assert done.returncode == 1
    assert "'no-such-command' was not found" in done.stderr
    assert "nothing" not in workspace.starling("server", "list").stdout


def test_unknown_server_is_refused_with_the_known_names(workspace: CliWorkspace, platform: Service) -> None:
    assert platform.said["epoch"]

    done = workspace.starling("server", "test", "nobody")

    assert done.returncode == 2
    assert "There is no server 'nobody'" in done.stderr
    assert "system_health" in done.stderr


@pytest.mark.parametrize(
    ("kind", "mistyped", "meant"),
    [
        ("server", "sistem_health", "system_health"),
        ("agent", "mcp_agent_sistem_health", "mcp_agent_system_health"),
        ("tenant", "defualt", "default"),
    ],
)
def test_kill_switch_for_unknown_target_warns(
    workspace: CliWorkspace, platform: Service, kind: str, mistyped: str, meant: str
) -> None:
    assert platform.said["epoch"]

    wrong = workspace.starling("switch", "off", kind, mistyped, "--reason", "a typo")
    right = workspace.starling("switch", "off", kind, meant, "--reason", "no typo")

    for name in (mistyped, meant):
        assert workspace.starling("switch", "on", kind, name).returncode == 0
    assert (wrong.returncode, right.returncode) == (0, 0)
    assert f"There is no {kind} {mistyped!r} now: it will be off if it comes." in wrong.stdout
    assert "There is no" not in right.stdout


def test_unknown_run_is_refused_with_a_hint(workspace: CliWorkspace, platform: Service) -> None:
    assert platform.said["epoch"]

    unknown = workspace.starling("run", "show", "01900000-0000-7000-8000-000000000000")
    malformed = workspace.starling("run", "tail", "nonsense")

    assert (unknown.returncode, malformed.returncode) == (2, 2)
    assert "There is no run" in unknown.stderr
    assert "starling run list" in unknown.stderr
    assert "starling run list" in malformed.stderr


def test_second_up_on_a_data_folder_names_the_first_process(workspace: CliWorkspace, platform: Service) -> None:
    done = workspace.starling("up", "--port", "0")

    assert done.returncode == 2
    assert f"belongs to process {platform.process.pid}" in done.stderr
    assert "STARLING_DATA_DIR" in done.stderr


@pytest.mark.parametrize(("number", "code", "installed"), [(signal.SIGTERM, 0, True), (signal.SIGINT, 130, False)])
def test_up_stops_on_signal_without_leftover_processes(number: int, code: int, *, installed: bool) -> None:
    with (
        new_workspace() as workspace,
        workspace.running("up", "--port", "0", "--mcp-config", _one_server(workspace), installed=installed) as service,
    ):
        workspace.starling("ask", _QUESTION, "--url", service.url)  # now it has a session open

        assert service.stopped_by(number) == (code, [])


def test_up_survives_a_killed_embedded_postgres() -> None:
    with (
        new_workspace() as workspace,
        workspace.running("up", "--port", "0", "--mcp-config", _one_server(workspace)) as service,
    ):
        server = next(child for child in psutil.Process(service.process.pid).children() if child.name() == "postgres")

        server.kill()
        asked = workspace.starling("ask", _QUESTION, "--url", service.url)

        assert asked.returncode == 0, asked.stderr
        assert service.stopped_by(signal.SIGTERM) == (0, [])


def test_serve_and_worker_complete_a_run_together(own_workspace: CliWorkspace) -> None:
    workspace = replace(
        own_workspace, variables={**own_workspace.variables, "STARLING_MCP_CONFIG": str(_one_server(own_workspace))}
    )

    with (
        workspace.running("serve", "--port", "0") as api,
        workspace.running("worker") as worker,
    ):
        done = workspace.starling("ask", _QUESTION, "--url", api.url)

        assert done.returncode == 0, done.stderr
        assert worker.stopped_by(signal.SIGTERM) == (0, [])
        assert api.stopped_by(signal.SIGTERM) == (0, [])


def test_db_upgrade_migrates_an_empty_database(empty_database_url: str) -> None:
    with new_workspace(DATABASE_URL=empty_database_url) as workspace:
        before = workspace.starling("run", "list")
        upgraded = workspace.json("db", "upgrade")
        after = workspace.starling("run", "list")

    assert before.returncode == 2
    assert "starling db upgrade" in before.stderr
    assert upgraded["schema"]
    assert after.returncode == 0
    assert "starling ask" in after.stdout


def test_command_without_a_database_says_how_to_get_one() -> None:
    with new_workspace() as workspace:
        done = workspace.starling("run", "list")

    assert done.returncode == 3
    assert "starling up" in done.stderr
    assert "DATABASE_URL" in done.stderr


def test_ask_without_an_api_says_how_to_start_one() -> None:
    with new_workspace() as workspace, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        done = workspace.starling("ask", "hello", "--url", f"http://127.0.0.1:{taken.getsockname()[1]}")

    assert done.returncode == 3
    assert "starling up" in done.stderr


def test_up_on_a_used_port_is_refused(own_workspace: CliWorkspace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = own_workspace.starling("up", "--port", str(taken.getsockname()[1]))

    assert done.returncode == 2
    assert "Address already in use" in done.stderr
    assert "--port" in done.stderr


@pytest.mark.parametrize("option", [("--mcp-config", "bad.json"), ()])
def test_invalid_configuration_is_refused_before_anything_starts(option: tuple[str, ...]) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    with new_workspace(DATABASE_URL=nowhere, STARLING_MODEL="offline:rules" if option else "nonsense") as workspace:
        (workspace.folder / "bad.json").write_text("[")

        done = workspace.starling("up", "--port", "0", *option)

    assert done.returncode == 2
    assert ("bad.json is not JSON" if option else "'nonsense'") in done.stderr


def test_invalid_yaml_is_refused_with_the_line(own_workspace: CliWorkspace) -> None:
    file = own_workspace.folder / "other.yaml"
    file.write_text("bogus: [1\n")

    done = own_workspace.starling("--settings", file, "run", "list")

    assert done.returncode == 2
    assert f"{file} is not YAML" in done.stderr
    assert "line 2" in done.stderr


def test_run_continues_after_ask_is_interrupted(database_url: str, tmp_path: Path) -> None:
    with (
        model_process(tmp_path, Rule(Answer(hold="gate"))) as model,
        new_workspace(DATABASE_URL=database_url, **model_variables(model)) as workspace,
        workspace.running("up", "--port", "0") as service,
    ):
        with workspace.started("ask", "hello", "--url", service.url) as reader:
            run_id = _next_line(reader).split()[1]
            reader.send_signal(signal.SIGINT)
            assert reader.wait() == 130
            assert reader.stderr is not None
            assert f"starling run tail {run_id}" in reader.stderr.read()

        with workspace.started("run", "tail", run_id) as tail:
            begun = _next_line(tail)
            httpx.post(f"{model.removesuffix('/v1')}/release/gate")
            rest, _ = tail.communicate()

    assert begun.startswith(f"Run {run_id}")
    assert "Failed:" in rest


@pytest.mark.parametrize("command", [("up", "--port", "0"), ("worker",)])
def test_unreachable_postgres_ends_the_command_with_a_hint(command: tuple[str, ...]) -> None:
    limits = '{"database_seconds": 0.6}'  # three attempts
    with new_workspace(DATABASE_URL="postgresql://nobody@127.0.0.1:1/none", STARLING_LIMITS=limits) as workspace:
        done = workspace.starling(*command)

    assert done.returncode == 3
    assert done.stderr.count("Waiting for Postgres, 0.6 s at most: ") == 1
    assert "DATABASE_URL" in done.stderr


def _one_server(workspace: CliWorkspace) -> Path:
    return server_file(workspace, system_health=SYSTEM_HEALTH)


def _next_line(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline()
