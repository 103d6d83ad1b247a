"""The teams of `examples/teams` do a request with members of CrewAI and real servers, as configured beside them."""

import functools
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from architect.spec_format import read_team
from mcp_gateway.configuration.servers import read_config
from starling.infra.postgres.audit import Actor
from tests.integration.brain.conftest import Open
from tests.support import reference_servers
from tests.support.gateway_harness import SERVERS
from tests.support.interrupted_runs import answer_interrupts, execute_run, open_interrupts
from tests.support.model_script import Answer
from tests.support.platform import CALLER, ScriptedModel, calls, decision, task, verdict
from tests.support.reference_servers import ReferenceServers

FOLDER = Path(__file__).parents[3] / "examples/teams"


@pytest.fixture
def page(tmp_path: Path) -> Generator[str]:
    """The address of a web page about tea."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=tmp_path / "pages")
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/tea.txt").write_text("Green tea was first grown in China.")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/tea.txt"
        server.shutdown()


@pytest.fixture
def servers(tmp_path: Path) -> Mapping[str, Any]:
    """The servers of the example teams, over data in a folder."""
    data = ReferenceServers(tmp_path)
    data.create()
    own = dict(data.configuration())
    own["filesystem"]["args"][-1] = data.places["repo"]
    own["fetch"] = {"command": sys.executable, "args": [str(SERVERS / "web_pages.py")]}
    options = {
        name: one.options.model_dump(mode="json", exclude_unset=True)
        for name, one in read_config(FOLDER / "mcp.json").items()
    }
    return {name: own[name] | {"x-starling": options[name]} for name in options}


def test_server_that_is_absent_fails_a_test_and_names_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_servers, "TOOLS", tmp_path)

    with pytest.raises(pytest.fail.Exception, match="`make test` installs it, and scripts/server-env time"):
        ReferenceServers(tmp_path).configuration()


type Steps = Mapping[str, Answer]
"""The first answer of each member, in the order of their tasks."""


def research(page: str, _: str) -> Steps:
    tea = {"name": "tea", "entityType": "drink", "observations": [f"First grown in China ({page})."]}
    return {
        "reader": calls(("fetch", {"url": page})),
        "librarian": calls(("create_entities", {"entities": [tea]})),
        "writer": Answer(f"Tea was first grown in China ({page})."),
    }


def coding(_: str, repo: str) -> Steps:
    edit = {"path": f"{repo}/parser.py", "edits": [{"oldText": "x = 3", "newText": "x = 4"}]}
    return {
        "navigator": calls(("search_files", {"path": repo, "pattern": "*.py"})),
        "historian": calls(("git_log", {"repo_path": repo})),
        "programmer": calls(("edit_file", edit)),
        "reviewer": calls(("git_diff_unstaged", {"repo_path": repo})),
    }


@pytest.mark.parametrize(
    ("steps", "approved", "read", "changed"),
    [
        (research, [], ["Green tea was first grown in China."], ("graph.jsonl", "(http")),
        (coding, ["filesystem.edit_file"], ["parser.py", "Fix the parser", "+x = 4"], ("repo/parser.py", "x = 4")),
    ],
)
async def test_example_team_does_a_request_with_real_servers(
    steps: Callable[[str, str], Steps],
    approved: list[str],
    read: list[str],
    changed: tuple[str, str],
    *,
    page: str,
    servers: Mapping[str, Any],
    opened: Open,
    script: ScriptedModel,
    tmp_path: Path,
) -> None:
    spec = read_team((FOLDER / f"{steps.__name__}.yaml").read_text("utf-8"))
    answers = steps(page, str(tmp_path / "repo"))
    members = list(answers)
    tasks = [task(name, name, after=members[:at]) for at, name in enumerate(members)]
    script.supervisor(decision(task("team", spec.name)), decision(*tasks))
    for name, answer in answers.items():
        script.agent(name, *([answer] if answer.tool_calls else []), Answer(answer.content or "It is done."))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("It is done [1]."))
    async with opened(servers=servers) as platform:
        await platform.services.teams.add(CALLER, spec.name, spec, Actor.local("test"))
        await platform.services.teams.activate(CALLER, spec.name, None, Actor.local("test"))
        key = await platform.accept("Do what the team is for.")
        await execute_run(platform, key)
        if asked := await open_interrupts(platform, key):
            await answer_interrupts(platform, key, approved=True)
            await execute_run(platform, key)
        stream = await platform.stream(key)

    assert len(platform.requests_containing("Current Task")) >= len(members)  # of CrewAI's prompts
    assert [one.call and one.call["name"] for one in asked] == approved
    assert (stream.status, stream.codes) == ("succeeded", ["limits_overridden"])
    assert [one["path"] for one in stream.of("task_result")] == [*(f"team/{name}" for name in members), "team"]
    results = "\n".join(one["result"] for one in stream.of("tool_result"))
    assert [text for text in read if text not in results] == []
    assert changed[1] in (tmp_path / changed[0]).read_text()
