"""Whatever a designer writes becomes a sound team, findings or a question; nothing is raised or evaluated."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from architect.checks import DESIGN_RULES, WITHOUT_EXAMPLES, checked
from architect.design.designer import design_team
from starling.core.teams.building import BuildRequest
from starling.core.tool_calls import Effect
from tests.support.in_memory_build import InMemoryBuild, is_sound, tool, world_of

TOOLS = (
    tool("time.now", "Tell the time"),
    tool("files.write_file", "Write a text into a file", Effect.UNSAFE),
    tool("files.read_file", "Read a file"),
)
WORLD = world_of(*TOOLS, agents=["taken"], builtins=["coder"])
TEXTS = st.one_of(
    st.sampled_from(
        ["", "time", "files", "time.now", "files.write_file", "now", "supervisor", "mcp_agent_time", "c0der"]
    ),
    st.sampled_from(["taken", "{secret.__class__}", "__import__('os')", "$goal", "a\x00b", "\ud800", "x" * 5_000]),
    st.text(max_size=20),
)
LISTS = st.lists(TEXTS, max_size=3)
MEMBERS = st.fixed_dictionaries(
    {"name": TEXTS},
    optional={
        "role": TEXTS,
        "goal": TEXTS,
        "server": TEXTS,
        "team": TEXTS,
        "tools": LISTS,
        "parts": st.lists(st.integers(), max_size=2),
    },
)
EXAMPLES = st.fixed_dictionaries({"request": TEXTS}, optional={"must_call": LISTS, "contains": LISTS, "judged": LISTS})
DOCUMENTS = st.fixed_dictionaries(
    {"members": st.lists(MEMBERS, max_size=14)},
    optional={
        "name": TEXTS,
        "purpose": TEXTS,
        "instructions": TEXTS,
        "missing": st.lists(st.one_of(TEXTS, st.integers()), max_size=3),
        "question": TEXTS,
        "options": LISTS,
    }
    | {"examples": st.lists(EXAMPLES, max_size=4)},
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    answers=st.lists(DOCUMENTS, min_size=4, max_size=4),
    goal=st.one_of(TEXTS, st.just("Tell the time and write it into a file")),
)
def test_any_document_is_a_sound_team_findings_gaps_or_a_question(answers: list[dict[str, Any]], goal: str) -> None:
    run = InMemoryBuild(TOOLS, [*answers])

    found = asyncio.run(design_team(BuildRequest(goal=goal), WORLD, None, run))

    assert found.spec or found.findings or found.missing or found.question
    if found.spec and is_sound(found):
        rules = DESIGN_RULES if found.spec.examples else WITHOUT_EXAMPLES
        assert checked(found.spec, WORLD, rules) == []
        assert all(one.approval == "effects" for one in found.spec.members if "files.write_file" in one.tools)
    for event in run.events:
        event.model_dump_json()
