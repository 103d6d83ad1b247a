"""An agent's turn: a tool is called only if every word of the task is accounted for."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from brain.agents.tools.reading_tools import READ_ARTIFACT_SPEC
from starling.core.llm import Message, ToolSpec
from tests.support.offline_requests import DATA, calls, select_calls, tools_of

CALLS: list[tuple[str, str, str, Mapping[str, object]]] = [
    ("time", "what time is it in Lima", "get_current_time", {"timezone": "America/Lima"}),
    ("time", "Could you tell me the time in new york, please?", "get_current_time", {"timezone": "America/New_York"}),
    ("time", "What time is it in Japan?", "get_current_time", {"timezone": "Japan"}),
    (
        "time",
        "convert 9:30 from UTC to Lima",
        "convert_time",
        {"source_timezone": "UTC", "time": "09:30", "target_timezone": "America/Lima"},
    ),
    ("git", "list the last 3 commits of /r", "git_log", {"repo_path": "/r", "max_count": 3}),
    ("git", "what is the status of /r?", "git_status", {"repo_path": "/r"}),
    ("git", "show the remote branches of /r", "git_branch", {"repo_path": "/r", "branch_type": "remote"}),
    ("git", 'show the revision "HEAD" of /r', "git_show", {"repo_path": "/r", "revision": "HEAD"}),
    (
        "git",
        'commit /r with the message "not yesterday"',
        "git_commit",
        {"repo_path": "/r", "message": "not yesterday"},
    ),
    ("git", 'please create a branch named "b" in /r', "git_create_branch", {"repo_path": "/r", "branch_name": "b"}),
    ("everything", "what is the sum of 2 and 3?", "get-sum", {"a": 2, "b": 3}),
    ("everything", 'echo "hello, what time is it?"', "echo", {"message": "hello, what time is it?"}),
    ("everything", "structured content for New York", "get-structured-content", {"location": "New York"}),
    ("memory", 'delete the entities "Alice" and "Bob"', "delete_entities", {"entityNames": ["Alice", "Bob"]}),
    ("filesystem", "read the last 5 lines of /a.txt", "read_text_file", {"path": "/a.txt", "tail": 5}),
    ("filesystem", 'write "hi" to "/tmp/a b.txt"', "write_file", {"path": "/tmp/a b.txt", "content": "hi"}),
    ("filesystem", "move /a to /b", "move_file", {"source": "/a", "destination": "/b"}),
    ("filesystem", "what is the size of /a.txt?", "get_file_info", {"path": "/a.txt"}),
    ("filesystem", "list the files in /tmp", "list_directory", {"path": "/tmp"}),
    ("system_health", "how full is this disk?", "disk", {}),
    ("system_health", "how full is the disk of /home?", "disk", {"path": "/home"}),
    ("system_health", "which processes use the most memory?", "processes", {"sort_by": "memory"}),
    ("sqlite", 'execute the query "SELECT 1"', "read_query", {"query": "SELECT 1"}),
    ("sqlite", 'describe the table "orders"', "describe_table", {"table_name": "orders"}),
]

REFUSED = [
    ("system_health", "How much disk does /var/log use?", "use"),
    ("system_health", "How much of the disk is used by /var/log?", "used"),
    ("time", "what time is it in Springfield", "Springfield"),
    ("time", "what time was it in Lima", "was"),
    ("time", "what time will it be in Lima", "will"),
    ("time", "what time is it in Lima tomorrow", "tomorrow"),
    ("time", "what time isn't it in Lima", "isn't"),
    ("time", "what time is it in Lima in three hours", "three"),
    ("time", "what time is it in Lima and Tokyo", "`time`"),
    ("time", "what time is it in Lima at 16:30", "16:30"),
    ("time", "what is the current time", "`timezone`"),
    ("git", "list the first 3 commits of /r", "first"),
    ("git", "list the commits of /r except the last one", "except"),
    ("git", "how many commits does /r have", "many"),
    ("git", "who wrote the last commit of /r", "who"),
    ("git", "commit the changes in /r", "`message`"),
    ("git", "what was reset in /r?", "was"),
    ("git", "list the last 3 commits", "`repo_path`"),
    ("everything", "what is the sum of 2, 3 and 4?", "`a`"),
    ("everything", "compress a file", "`name`"),
    ("memory", 'search nodes for "Alice" and "Bob"', "Alice"),
    ("memory", 'create an entity named "Alice"', "`entities`"),
    ("memory", "delete the entity Alice", "Alice"),
    ("filesystem", "write a poem to /tmp/x.txt", "poem"),
    ("filesystem", "create the file /tmp/x.txt", "`content`"),
    ("filesystem", "compare /a.txt and /b.txt", "compare"),
    ("filesystem", "read the second line of /a.txt", "second"),
    ("system_health", "which folder uses the most disk space", "folder"),
    ("system_health", "how many processes are running", "many"),
    ("system_health", "kill the biggest process", "No tool here"),
    ("sqlite", 'append "x" to /tmp/x.txt', "/tmp/x.txt"),
]


@pytest.mark.parametrize(("server", "task", "tool", "arguments"), CALLS)
def test_task_whose_words_are_all_accounted_for_is_one_call(
    server: str, task: str, tool: str, arguments: Mapping[str, object]
) -> None:
    assert calls(select_calls(tools_of(server), task)) == [(tool, arguments)]


@pytest.mark.parametrize(("server", "task", "word"), REFUSED)
def test_leftover_word_or_missing_argument_calls_nothing_and_is_named(server: str, task: str, word: str) -> None:
    reply = select_calls(tools_of(server), task)

    assert reply.tool_calls == ()
    assert word in reply.content


@pytest.mark.parametrize(
    ("server", "task"),
    [
        ("git", "the reset of /r"),
        ("git", 'how do I commit in /r with the message "x"?'),
        ("git", 'the commit of /r with the message "x"'),
        ("memory", 'who deleted the entities "Alice" and "Bob"?'),
        ("memory", 'the entities to delete are "Alice" and "Bob"'),
        ("filesystem", 'is "hi" in the new file /tmp/x.txt?'),
    ],
)
def test_tool_that_changes_something_is_not_called_unless_its_verb_is_ordered(server: str, task: str) -> None:
    assert select_calls(tools_of(server), task).tool_calls == ()


def test_renamed_tool_is_found_by_its_description() -> None:
    time, convert = tools_of("time")

    reply = select_calls([replace(convert, name="b"), replace(time, name="clock_now")], "what time is it in Lima")

    assert calls(reply) == [("clock_now", {"timezone": "America/Lima"})]


@pytest.mark.parametrize("name", ["find_charge", "charge_status"])
def test_order_whose_verb_is_a_noun_of_a_reading_tool_calls_nothing(name: str) -> None:
    schema = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}

    reply = select_calls([ToolSpec(name, "Get whether a charge was made.", schema)], "Charge 'bob'.")

    assert reply.tool_calls == ()


def test_two_tools_that_change_the_same_are_not_chosen_between() -> None:
    schema = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
    order = ToolSpec("order", "Order an item.", schema)

    reply = select_calls([order, replace(order, name="order_now")], 'order "tea"')

    assert reply.tool_calls == ()
    assert "More than one tool" in reply.content


def test_values_of_conversation_and_other_parts_fill_no_argument() -> None:
    state = json.dumps({"messages": [{"role": "user", "content": "How is Lima?"}], "results": {"t1": "America/Lima"}})

    reply = select_calls(tools_of("time"), "what time is it", request="what time is it in Lima", state=state)

    assert reply.tool_calls == ()


def test_rejected_call_is_not_followed_by_another() -> None:
    tools, task = tools_of("filesystem"), "read /a.txt"
    first = select_calls(tools, task)
    rejected = [Message("assistant", "", first.tool_calls), Message("user", "<feedback>wrong</feedback>")]

    again = select_calls(tools, task, more=rejected)

    assert len(first.tool_calls) == 1
    assert again.tool_calls == ()
    assert again.content


def test_built_in_tools_are_never_called() -> None:
    tools = [ToolSpec("continue", "Read the artifact.", {"type": "object"}), READ_ARTIFACT_SPEC]

    assert select_calls(tools, "read the artifact").tool_calls == ()


@pytest.mark.parametrize("row", (DATA / "weird_schemas.jsonl").read_text("utf-8").splitlines())
def test_unusual_schemas_raise_no_error(row: str) -> None:
    tool = json.loads(row)["tool"]
    spec = ToolSpec("odd", tool.get("description") or "", tool.get("inputSchema") or {})

    reply = select_calls([spec], f'{spec.description[:200]} 3 of /a/b in Lima "x"')

    assert reply.content or reply.tool_calls


@pytest.mark.parametrize(
    ("after", "answered"),
    [
        ([], "a\nb"),
        ([Message("user", "<feedback>It is another disk.</feedback>")], "There is no other way to do this task."),
    ],
    ids=["results", "results that were rejected"],
)
def test_agent_that_is_asked_again_answers_with_the_results_unless_they_were_rejected(
    after: list[Message], answered: str
) -> None:
    tools, task = tools_of("system_health"), "how full is this disk?"
    made = Message("assistant", "", select_calls(tools, task).tool_calls)
    results = [Message("tool", text, tool_call_id="1") for text in "ab"]

    again = select_calls(tools, task, more=[made, *results, *after])

    assert (again.content, again.tool_calls) == (answered, ())
