"""Planning: the parts of a request are assigned to matching agents."""

import json
import random
import time
from dataclasses import replace

import pytest

from brain.governance import TableGovernance
from brain.prompts import Xml, element, lines
from starling.core.runs import Channel, Mode, RunLimits
from starling.core.settings import Limits
from tests.support.offline_requests import CARDS, card, decide, placed, tools_of

NO_CITIES = [one for one in CARDS if one.server in ("time", "git", "system_health")]


@pytest.mark.parametrize(
    ("request_text", "servers"),
    [
        ("what time is it in Lima and how full is this disk?", ["time", "system_health"]),
        ("list the last 3 commits of /srv/app and tell me the load", ["git", "system_health"]),
        ("list the last 3 commits of /srv/time and disk", ["git", "system_health"]),
        ("What time is it in Lima? And in which branches is /srv/app?", ["time", "git"]),
        ("1. time in Lima\n2. disk usage\n3. list files in /tmp", ["time", "system_health", "filesystem"]),
        ("how much memory is free?", ["system_health"]),
        ("disk and memory usage", ["system_health"]),
        ("What is the sum of 2 and 3?", ["everything"]),
        ('echo "hello and what time is it" and create an entity named Alice of type person', ["everything", "memory"]),
        ("read /tmp/a.txt and /tmp/b.txt", ["filesystem"]),
        ("think step by step about moving house", ["sequential_thinking"]),
        ("When it is 16:30 in Lima, what time is it in Tokyo?", ["time"]),
        ("I'm in Lima. What time is it?", ["time"]),
        ("My repo is /a/b. List the last 3 commits. Thanks!", ["git"]),
    ],
)
def test_each_part_is_assigned_to_the_matching_agent(request_text: str, servers: list[str]) -> None:
    decision = decide(request_text)

    assert placed(decision) == servers
    assert decision.unserved == []


@pytest.mark.parametrize(
    "request_text",
    [
        "book me a flight to Mars",
        "what is the capital of France?",
        "search for flights to Mars",
        "delete all my emails",
        "write a poem about spring",
        "summarize the news",
        "利马现在几点",
        "Wie spät ist es in Berlin?",
    ],
)
def test_part_without_a_matching_agent_is_unserved(request_text: str) -> None:
    decision = decide(request_text)

    assert decision.selected_agents == []
    assert [part.part for part in decision.unserved] == [request_text]
    assert "offline:rules" in decision.unserved[0].reason


def test_mode_is_named_in_the_reason_of_an_unserved_part() -> None:
    hint = TableGovernance(Limits()).evaluate_request("t", Channel.CHAT, Mode.CONSERVATIVE, "", RunLimits()).hint

    decision = decide("book me a flight to Mars", state=json.dumps({"hint": hint}))

    assert "Mode CONSERVATIVE: only tools that read may be called" in decision.unserved[0].reason


def test_request_with_an_unserved_part_is_partly_assigned() -> None:
    decision = decide("what's the weather in Lima and what time is it there?")

    assert placed(decision) == ["time"]
    assert decision.selected_agents[0].task == "what time is it there (Lima)"
    assert [part.part for part in decision.unserved] == ["what's the weather in Lima"]


@pytest.mark.parametrize("request_text", ["hello", "Hi there!", "what can you do?", "who are you?", "thanks a lot"])
def test_small_talk_gets_a_reply_that_lists_the_agents(request_text: str) -> None:
    decision = decide(request_text)

    assert decision.selected_agents == []
    assert decision.unserved == []
    assert "mcp-git" in decision.reply


def test_back_reference_is_replaced_by_its_values() -> None:
    decision = decide("show the git status of /srv/app and list its last 3 commits")

    assert [task.task for task in decision.selected_agents] == [
        "show the git status of /srv/app",
        "list its last 3 commits (/srv/app)",
    ]


def test_part_that_needs_an_earlier_result_depends_on_its_task() -> None:
    decision = decide("what time is it in Lima, then convert that time to Tokyo time")

    assert [task.depends_on for task in decision.selected_agents] == [[], ["t1"]]


def test_decision_is_independent_of_card_order_and_tool_names() -> None:
    renamed = {"get_current_time": "clock_now", "convert_time": "shift", "disk": "volume_state", "git_log": "past"}
    cards = [
        card(server, [replace(tool, name=renamed.get(tool.name, tool.name)) for tool in tools_of(server)])
        for server in ("time", "git", "system_health", "filesystem")
    ]
    request_text = "what time is it in Lima, list the last 3 commits of /a/b and how full is this disk?"
    orders = [random.Random(seed).sample(cards, len(cards)) for seed in range(10)]

    plans = [placed(decide(request_text, order)) for order in orders]

    assert plans == [["time", "git", "system_health"]] * 10


def test_degraded_agent_is_reported_and_not_selected() -> None:
    cards = [card("time", tools_of("time"), degraded="the command mcp-server-time is not installed"), *NO_CITIES[1:]]

    decision = decide("convert time to another time and tell me the load", cards)

    assert placed(decision) == ["system_health"]
    assert "mcp_agent_time is degraded" in decision.unserved[0].reason
    assert "not installed" in decision.unserved[0].reason


def test_demonstrative_without_a_value_becomes_an_assumption() -> None:
    decision = decide("how full is this disk?")

    assert "this disk" in decision.assumptions[0]


def test_failed_task_without_an_alternative_agent_is_unserved_with_its_reason() -> None:
    plan = [
        element("task", "what time is it in Lima", id="t1", agent="mcp_agent_time", status="failed", depends_on=""),
        element("task", "tell me the load", id="t2", agent="mcp_agent_system_health", status="approved", depends_on=""),
    ]
    state = json.dumps({"results": [{"task_id": "t1", "status": "failed", "output": "", "reason": "no such zone"}]})

    decision = decide("what time is it in Lima and tell me the load", NO_CITIES, plan, state)

    assert decision.selected_agents == []
    assert [(part.part, part.reason) for part in decision.unserved] == [("what time is it in Lima", "no such zone")]
    assert decision.is_progress_being_made


def test_failed_task_is_assigned_to_an_alternative_agent_once() -> None:
    twins = [card("time", tools_of("time")), card("clock", tools_of("time"))]
    task = "what time is it in Lima"

    first = decide(task, twins)
    failed = [element("task", task, id="t1", agent=first.selected_agents[0].agent, status="failed", depends_on="")]
    second = decide(task, twins, failed)
    again = [element("task", task, id="t1", agent=second.selected_agents[0].agent, status="failed", depends_on="")]
    third = decide(task, twins, again)

    assert [one.task_id for one in second.selected_agents] == ["t1"]
    assert {first.selected_agents[0].agent, second.selected_agents[0].agent} == {"mcp_agent_time", "mcp_agent_clock"}
    assert third.selected_agents == []
    assert [part.part for part in third.unserved] == [task]


def test_plan_with_approved_tasks_is_satisfied() -> None:
    plan = [element("task", "tell me the load", id="t1", agent="a", status="approved", depends_on="")]

    assert decide("tell me the load", plan=plan).is_request_satisfied


def said(*messages: str) -> Xml:
    """Return a history in which the user said every other message."""
    return lines(element("message", text, role=("user", "assistant")[at % 2]) for at, text in enumerate(messages))


@pytest.mark.parametrize(
    ("asked", "follow_up", "task"),
    [
        ("what time is it in Lima?", "and in Tokyo?", "what time is it in Tokyo?"),
        ("how full is this disk and what time is it in Lima", "and in Tokyo?", "what time is it in Tokyo"),
        ("What were the last 2 commits of /r?", "and for /b?", "What were the last 2 commits of /b?"),
        ("what time is it in Lima?", "what time is it in Lima?", "what time is it in Lima?"),
    ],
)
def test_follow_up_with_values_only_takes_the_wording_of_the_last_request(
    asked: str, follow_up: str, task: str
) -> None:
    decision = decide(follow_up, NO_CITIES, history=said(asked, "06:13 in Lima"))

    assert [one.task for one in decision.selected_agents] == [task]


def test_follow_up_without_a_matching_earlier_value_is_unclear() -> None:
    decision = decide("and in Tokyo?", history=said("What were the last 2 commits of /r?", "Commit: 1"))

    assert decision.selected_agents == []
    assert "isn't clear" in decision.reply


def test_thought_process_names_the_matched_words() -> None:
    thought = decide("What time is it in Lima and how busy is this machine?", NO_CITIES).thought_process

    assert "mcp_agent_time fits by time;" in thought
    assert "busy, machine" in thought


@pytest.mark.parametrize("noun", ["commits", "diff", "status", "log", "branches"])
def test_subject_of_a_request_outweighs_its_qualifiers(noun: str) -> None:
    cards = [one for one in CARDS if one.server in ("git", "system_health")]

    assert placed(decide(f"What were the last 3 {noun} of /srv/shop?", cards)) == ["git"]


def test_three_hundred_cards_are_ranked_within_milliseconds() -> None:
    cards = [replace(CARDS[at % len(CARDS)], name=f"mcp_agent_{at}") for at in range(300)]
    decide("what time is it in Lima?", cards)

    began = time.process_time()
    decide("how full is this disk?", cards)

    assert time.process_time() - began < 0.2  # seconds of processor time, about 0.02 on an idle machine
