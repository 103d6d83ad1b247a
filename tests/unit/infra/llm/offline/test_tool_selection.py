"""A specialist's turn: selection of tools, with arguments from the task."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from brain.agents.artifact_tool import READ_ARTIFACT_SPEC
from starling.core.llm import Message, ToolSpec
from starling.infra.llm.offline.write_intent import is_write_tool
from tests.support.offline_requests import DATA, calls, select_calls, tools_of

LIMA_NOW = '{"timezone": "America/Lima", "datetime": "2026-11-20T05:00:14-05:00"}'


TASKS: list[tuple[str, str, list[tuple[str, Mapping[str, object]]]]] = [
    ("time", "what time is it in Lima", [("get_current_time", {"timezone": "America/Lima"})]),
    ("time", "the time in new york, please", [("get_current_time", {"timezone": "America/New_York"})]),
    (
        "time",
        "what time is it in Lima and Tokyo",
        [("get_current_time", {"timezone": "America/Lima"}), ("get_current_time", {"timezone": "Asia/Tokyo"})],
    ),
    (
        "time",
        "what time is it in Tokyo when it is 4pm in Lima?",
        [("convert_time", {"source_timezone": "America/Lima", "time": "16:00", "target_timezone": "Asia/Tokyo"})],
    ),
    (
        "time",
        "convert 16:30 from Lima to Tokyo",
        [("convert_time", {"source_timezone": "America/Lima", "time": "16:30", "target_timezone": "Asia/Tokyo"})],
    ),
    ("git", "list the last 3 commits of /srv/app", [("git_log", {"repo_path": "/srv/app", "max_count": 3})]),
    ("git", "list its last three commits (/r)", [("git_log", {"repo_path": "/r", "max_count": 3})]),
    (
        "git",
        "show the git status and the last 3 commits of /r",
        [("git_status", {"repo_path": "/r"}), ("git_log", {"repo_path": "/r", "max_count": 3})],
    ),
    ("git", 'commit /r with message "fix it"', [("git_commit", {"repo_path": "/r", "message": "fix it"})]),
    (
        "git",
        "add README.md and src/a.py in /r",
        [("git_add", {"repo_path": "/r", "files": ["README.md", "src/a.py"]})],
    ),
    (
        "git",
        "create a branch called fix-1 in /r",
        [("git_create_branch", {"repo_path": "/r", "branch_name": "fix-1"})],
    ),
    ("everything", "What is the sum of 2 and 3?", [("get-sum", {"a": 2, "b": 3})]),
    ("everything", "echo hello world", [("echo", {"message": "hello world"})]),
    ("everything", "structured content for Chicago", [("get-structured-content", {"location": "Chicago"})]),
    (
        "everything",
        "run a long running operation for 2 seconds in 4 steps",
        [("trigger-long-running-operation", {"duration": 2, "steps": 4})],
    ),
    (
        "memory",
        "create an entity named Alice of type person",
        [("create_entities", {"entities": [{"name": "Alice", "entityType": "person", "observations": []}]})],
    ),
    (
        "memory",
        'add the observation "likes tea" to Alice',
        [("add_observations", {"observations": [{"entityName": "Alice", "contents": ["likes tea"]}]})],
    ),
    ("memory", "open the nodes Alice and Bob", [("open_nodes", {"names": ["Alice", "Bob"]})]),
    ("memory", "search for Alice in the graph", [("search_nodes", {"query": "Alice"})]),
    (
        "filesystem",
        "read /tmp/a.txt and /tmp/b.txt",
        [("read_text_file", {"path": "/tmp/a.txt"}), ("read_text_file", {"path": "/tmp/b.txt"})],
    ),
    ("filesystem", "read the first 5 lines of /a.txt", [("read_text_file", {"path": "/a.txt", "head": 5})]),
    ("filesystem", 'write "hi" to /tmp/x.txt', [("write_file", {"path": "/tmp/x.txt", "content": "hi"})]),
    ("filesystem", "move /tmp/a to /tmp/b", [("move_file", {"source": "/tmp/a", "destination": "/tmp/b"})]),
    ("filesystem", "find *.py files in /src", [("search_files", {"path": "/src", "pattern": "*.py"})]),
    ("git", "how many commits does /r have", [("git_log", {"repo_path": "/r"})]),
    ("git", "What was the last commit of /r about", [("git_show", {"repo_path": "/r", "revision": "HEAD"})]),
    ("git", "What changed in the last commit of /r?", [("git_show", {"repo_path": "/r", "revision": "HEAD"})]),
    ("git", "Show me the diff of the last commit of /r", [("git_show", {"repo_path": "/r", "revision": "HEAD"})]),
    ("git", "What does 42bb162c046 in /r change?", [("git_show", {"repo_path": "/r", "revision": "42bb162c046"})]),
    ("git", "What is in the log of /r?", [("git_log", {"repo_path": "/r"})]),
    ("git", "What is the status of /r?", [("git_status", {"repo_path": "/r"})]),
    ("git", "commits of /r", [("git_log", {"repo_path": "/r"})]),
    ("git", "commit log of /r", [("git_log", {"repo_path": "/r"})]),
    ("git", 'Can you commit /r with message "x"?', [("git_commit", {"repo_path": "/r", "message": "x"})]),
    ("git", "run git status in /r", [("git_status", {"repo_path": "/r"})]),
    ("filesystem", "open the file /tmp/a.txt", [("read_text_file", {"path": "/tmp/a.txt"})]),
    ("git", "unstage everything in /r", [("git_reset", {"repo_path": "/r"})]),
    ("system_health", "how full is this disk?", [("disk", {})]),
    ("system_health", "disk and memory usage", [("disk", {}), ("memory", {})]),
    ("system_health", "the 3 busiest processes", [("processes", {"limit": 3})]),
]


@pytest.mark.parametrize(
    ("server", "task", "expected"),
    TASKS,
)
def test_task_is_turned_into_calls(server: str, task: str, expected: list[tuple[str, Mapping[str, object]]]) -> None:
    assert calls(select_calls(tools_of(server), task)) == expected


def test_renamed_and_shuffled_tools_are_found_by_their_descriptions() -> None:
    time, convert = tools_of("time")
    tools = [replace(convert, name="b"), replace(time, name="clock_now")]

    reply = select_calls(tools, "what time is it in Lima")

    assert calls(reply) == [("clock_now", {"timezone": "America/Lima"})]


@pytest.mark.parametrize(
    ("server", "task", "missing"),
    [
        ("time", "what time is it in Hamburg", "timezone"),
        ("git", "commit the changes in /r", "message"),
        ("git", "show the status", "repo_path"),
        ("everything", "structured content for Lima", "location"),
        ("time", "book a flight to Mars", "No tool here fits"),
        ("memory", "add a relation from Alice to Bob of type knows", "can't tell whether"),
    ],
)
def test_missing_argument_is_named_and_not_invented(server: str, task: str, missing: str) -> None:
    reply = select_calls(tools_of(server), task)

    assert reply.tool_calls == ()
    assert missing in reply.content


def test_missing_argument_is_taken_from_an_earlier_result() -> None:
    state = json.dumps({"results": {"t1": LIMA_NOW}})

    reply = select_calls(tools_of("time"), "convert that time to Tokyo time", state=state)

    expected = {"source_timezone": "America/Lima", "time": "05:00", "target_timezone": "Asia/Tokyo"}
    assert calls(reply) == [("convert_time", expected)]


def test_missing_path_is_taken_from_the_request() -> None:
    reply = select_calls(
        tools_of("git"), "list the last 3 commits", request="in /a/b: list the last 3 commits and the load"
    )

    assert calls(reply) == [("git_log", {"repo_path": "/a/b", "max_count": 3})]


def test_unknown_place_is_not_replaced_by_a_place_of_another_part() -> None:
    task = "what time is it in Atlantis?"

    reply = select_calls(tools_of("time"), task, request=f"what time is it in Lima? {task}")

    assert reply.tool_calls == ()
    assert "Atlantis" in reply.content


def test_rejection_is_followed_by_the_next_best_tool_and_then_by_none() -> None:
    tools = tools_of("time")[:1]
    task = "what time is it in Lima"
    first = select_calls(tools, task)
    rejected = [
        Message("assistant", "", first.tool_calls),
        Message("tool", "12", tool_call_id=first.tool_calls[0].id),
        Message("user", "<feedback>wrong place</feedback>"),
    ]

    alone = select_calls(tools, task, more=rejected)
    with_another = select_calls([*tools, replace(tools[0], name="zone_clock")], task, more=rejected)

    assert alone.tool_calls == ()
    assert "tried" in alone.content
    assert calls(with_another) == [("zone_clock", {"timezone": "America/Lima"})]


@pytest.mark.parametrize(
    ("server", "task"),
    [
        ("git", 'What were the last commits of /r with message "Tokyo"?'),
        ("git", "What was reset in /r?"),
        ("git", "Which commit added README.md to /r?"),
        ("git", "Did someone create a branch called dev in /r?"),
        ("git", "How do I commit in /r?"),
        ("git", "the reset of /r"),
        ("memory", "Who created the entity Alice?"),
        ("memory", "Were the nodes Alice and Bob deleted?"),
        ("filesystem", 'Is "Delete everything. Write it." in /tmp/a.txt?'),
    ],
)
def test_write_tool_is_not_called_unless_the_task_requests_a_change(server: str, task: str) -> None:
    tools = tools_of(server)
    made: list[Message] = []
    for attempt in range(len(tools)):
        reply = select_calls(tools, task, more=made)
        failed = [Message("tool", "Error: no", tool_call_id=call.id) for call in reply.tool_calls]
        made += [Message("assistant", "", reply.tool_calls), *failed]
        made.append(Message("user", f"<feedback>wrong {attempt}</feedback>"))

    called = {name for message in made for call in message.tool_calls for name in [call.name]}

    assert not any(is_write_tool(tool.name, tool.description) for tool in tools if tool.name in called), called


def test_rejection_is_not_followed_by_another_write_tool() -> None:
    tools = tools_of("memory")
    task = "delete the entity Alice"
    first = select_calls(tools, task)
    rejected = [Message("assistant", "", first.tool_calls), Message("user", "<feedback>no such entity</feedback>")]

    second = select_calls(tools, task, more=rejected)

    assert [name for name, _ in calls(first)] == ["delete_entities"]
    assert not any(is_write_tool(name) for name, _ in calls(second))


@pytest.mark.parametrize(
    ("server", "task"), [("memory", "remove the entity Alice"), ("git", "Delete the last commit of /r")]
)
def test_requested_change_without_a_matching_tool_calls_nothing(server: str, task: str) -> None:
    reply = select_calls(tools_of(server), task)

    assert reply.tool_calls == ()
    assert "can't tell" in reply.content


SAID = {"messages": [{"role": "user", "content": "How is Lima?"}, {"role": "assistant", "content": "06:13 in Lima"}]}


def test_conversation_fills_no_argument_without_a_back_reference() -> None:
    reply = select_calls(tools_of("time"), "What time is it in Lima?", state=json.dumps(SAID))

    assert calls(reply) == [("get_current_time", {"timezone": "America/Lima"})]


def test_back_reference_takes_arguments_from_the_conversation() -> None:
    there = select_calls(tools_of("time"), "What time is it there?", state=json.dumps(SAID))
    here = select_calls(tools_of("time"), "What time is it?", state=json.dumps(SAID))

    assert calls(there) == [("get_current_time", {"timezone": "America/Lima"})]
    assert calls(here) != calls(there)


def test_task_does_not_take_values_of_other_parts() -> None:
    task = "What time is it in Lima"

    reply = select_calls(tools_of("time"), task, request=f"{task} and convert 16:30 from Tokyo to Paris")

    assert calls(reply) == [("get_current_time", {"timezone": "America/Lima"})]


def test_built_in_read_artifact_is_never_called() -> None:
    """`offline:rules` takes a result as it was cut: it has nobody to read on for."""
    state = '{"artifacts": [{"id": "b640bd42", "characters": 50000, "from": "git.git_log", "task_id": "t0"}]}'

    reply = select_calls(
        [*tools_of("git"), READ_ARTIFACT_SPEC], "read the artifact b640bd42 on, and find a text in it", state=state
    )

    assert "read_artifact" not in {name for name, _ in calls(reply)}


def test_built_in_continue_is_never_called() -> None:
    tools = [ToolSpec("continue", "Call beside other tools to see the time in Lima.", {"type": "object"})]

    assert select_calls(tools, "what time is it in Lima").tool_calls == ()


@pytest.mark.parametrize("row", (DATA / "weird_schemas.jsonl").read_text("utf-8").splitlines())
def test_unusual_schemas_raise_no_error(row: str) -> None:
    tool = json.loads(row)["tool"]
    spec = ToolSpec("odd", tool.get("description") or "", tool.get("inputSchema") or {})

    reply = select_calls([spec], f'{spec.description[:200]} 3 of /a/b in Lima "x"')

    assert reply.content or reply.tool_calls


def test_arguments_are_always_valid_json() -> None:
    schema = {"type": "object", "properties": {"a": {"const": float("nan")}, "query": {"type": "string"}}}
    tool = ToolSpec("search", "Search for words.", {**schema, "required": ["a", "query"]})

    reply = select_calls([tool], "search for words on pelicans \ud800")

    assert calls(reply) == [("search", {"a": "nan", "query": "pelicans �"})]
