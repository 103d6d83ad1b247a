"""Planning: the parts of a request are assigned to the agents whose tools share their words."""

import json
import random
from dataclasses import replace

import pytest

from brain.prompts import element
from starling.core.llm import ToolSpec
from tests.support.offline_requests import CARDS, card, decide, placed, tools_of

LIMA = "what time is it in Lima"


@pytest.mark.parametrize(
    ("request_text", "servers"),
    [
        ("what time is it in Lima and how full is this disk?", ["time", "system_health"]),
        ("list the last 3 commits of /srv/time and tell me the load", ["git", "system_health"]),
        ("What time is it in Lima? And show the status of /srv/app.", ["time", "git"]),
        ("disk usage, and how much memory is available?", ["system_health", "system_health"]),
        ('echo "hello and what time is it", then list the tables in the database', ["everything", "sqlite"]),
        ("read /tmp/a.txt and /tmp/b.txt", ["filesystem"]),
        ("Please tell me the load. Thanks!", ["system_health"]),
        ('open the node "Alice" and, please, show the last 2 commits of /r', ["memory", "git"]),
    ],
)
def test_parts_are_assigned_to_the_agents_whose_tools_share_their_words(request_text: str, servers: list[str]) -> None:
    assert placed(decide(request_text)) == servers


@pytest.mark.parametrize(
    "request_text", ["write poetry about spring", "and in Tokyo?", "利马现在几点", "book me a flight to Mars"]
)
def test_part_without_a_matching_agent_is_unserved(request_text: str) -> None:
    decision = decide(request_text, [one for one in CARDS if one.server in ("time", "system_health")])

    assert decision.selected_agents == []
    assert decision.reply == ""
    assert "offline:rules" in decision.unserved[0].reason


@pytest.mark.parametrize("request_text", ["hello", "Hi there!", "what can you do?", "who are you?", "thank you"])
def test_greeting_gets_a_reply_that_lists_the_agents(request_text: str) -> None:
    decision = decide(request_text)

    assert (decision.selected_agents, decision.unserved) == ([], [])
    assert "mcp_agent_git" in decision.reply


def test_parts_after_a_change_wait_for_it() -> None:
    decision = decide('write "hi" to /tmp/a.txt and read /tmp/a.txt and tell me the load')

    assert [task.depends_on for task in decision.selected_agents] == [[], ["t1"], ["t1"]]


def test_decision_is_independent_of_card_order_and_tool_names() -> None:
    renamed = {"get_current_time": "clock_now", "disk": "volume_state", "git_log": "past"}
    cards = [
        card(server, [replace(tool, name=renamed.get(tool.name, tool.name)) for tool in tools_of(server)])
        for server in ("time", "git", "system_health", "filesystem")
    ]
    request_text = "what time is it in Lima, list the last 3 commits of /a/b and how full is this disk?"
    orders = [random.Random(seed).sample(cards, len(cards)) for seed in range(10)]

    plans = [placed(decide(request_text, order)) for order in orders]

    assert plans == [["time", "git", "system_health"]] * 10


def test_degraded_agent_is_reported_and_not_selected() -> None:
    cards = [card("time", tools_of("time"), degraded="the command is not installed"), card("git", tools_of("git"))]

    decision = decide(f"{LIMA} and show the status of /r", cards)

    assert placed(decision) == ["git"]
    assert "mcp_agent_time is degraded" in decision.unserved[0].reason
    assert "not installed" in decision.unserved[0].reason


def test_failed_task_and_what_needs_it_are_unserved_with_the_reason() -> None:
    plan = [
        element("task", LIMA, id="t1", agent="mcp_agent_time", status="failed", depends_on=""),
        element("task", "tell me the load", id="t2", agent="mcp_agent_system_health", status="approved", depends_on=""),
        element("task", "read /a", id="t3", agent="mcp_agent_filesystem", status="pending", depends_on="t1"),
        element("task", "read /b", id="t4", agent="mcp_agent_filesystem", status="pending", depends_on="t2"),
    ]
    state = json.dumps({"results": [{"task_id": "t1", "status": "failed", "output": "", "reason": "no such zone"}]})

    decision = decide("…", plan=plan, state=state)

    assert [task.task_id for task in decision.selected_agents] == ["t4"]
    assert [(part.part, part.reason) for part in decision.unserved] == [
        (LIMA, "no such zone"),
        ("read /a", "It needs a result that failed."),
    ]


def test_plan_with_approved_tasks_is_satisfied() -> None:
    plan = [element("task", "tell me the load", id="t1", agent="a", status="approved", depends_on="")]

    assert decide("tell me the load", plan=plan).is_request_satisfied


@pytest.mark.parametrize(
    ("request_text", "tasks"),
    [
        ("ask the team crew to show the load", [("crew", "show the load")]),
        ("Please use crew: what time is it in Lima?", [("crew", "what time is it in Lima")]),
        ("Tell the disk_watch team to show the load", [("disk_watch", "show the load")]),
        ("Use DISK_WATCH: book me a flight", [("disk_watch", "book me a flight")]),
        ("use crew: show the load. What time is it in Lima?", [("crew", "show the load"), ("mcp_agent_time", LIMA)]),
        ("use nobody: show the load", [("mcp_agent_system_health", "use nobody: show the load")]),
        ("never use crew: show the load", [("mcp_agent_system_health", "never use crew: show the load")]),
    ],
)
def test_part_that_names_its_agent_is_given_to_it_without_those_words(
    request_text: str, tasks: list[tuple[str, str]]
) -> None:
    teams = [replace(card("time", ()), name=name, kind="team", server=None) for name in ("crew", "disk_watch")]

    decision = decide(request_text, [*CARDS, *teams])

    assert [(task.agent, task.task[:1].lower() + task.task[1:]) for task in decision.selected_agents] == tasks


@pytest.mark.parametrize(
    ("request_text", "agents"),
    [
        ("How full is the disk, and how much memory is free?", ["crew"]),
        ("Watch the disk and the memory of this machine, please.", ["crew"]),
        ("How full is the disk?", ["mcp_agent_system_health"]),
        ("How full is the disk, and how much memory was free?", ["mcp_agent_system_health"] * 2),
        ("Use memory: how full is the disk, and how much memory is free?", ["mcp_agent_system_health"] * 2),
        ("Hello!", []),
    ],
)
def test_team_gets_whole_what_its_card_accounts_for_and_no_single_tool_does(
    request_text: str, agents: list[str]
) -> None:
    tools = [tool for tool in tools_of("system_health") if tool.name in ("disk", "memory")]
    purpose = "Watches the disk and the memory of this machine."
    team = replace(card("system_health", tools), name="crew", kind="team", server=None, description=purpose)

    decision = decide(request_text, [*CARDS, team])

    assert [task.agent for task in decision.selected_agents] == agents
    assert agents != ["crew"] or decision.selected_agents[0].task == request_text


def test_names_that_are_joined_stay_together_beside_tools_without_a_description() -> None:
    undescribed = card("store", [ToolSpec("get_item", "", {"type": "object"})])

    decision = decide("What time is it in Tokyo and Nairobi?", [card("time", tools_of("time")), undescribed])

    assert [task.task for task in decision.selected_agents] == ["What time is it in Tokyo and Nairobi"]


@pytest.mark.parametrize(
    ("request_text", "agent"),
    [
        ("Build me a team that tells the time", "architect"),
        ("Please create a new team for reports", "architect"),
        ("I want a team which shows the load", "architect"),
        ("Show the load of the team server", "mcp_agent_system_health"),
    ],
)
def test_wish_for_a_team_is_given_to_the_architect(request_text: str, agent: str) -> None:
    assert [one.agent for one in decide(request_text).selected_agents] == [agent]
