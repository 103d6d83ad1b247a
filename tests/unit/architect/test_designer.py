"""From a goal to a team: what the designer is shown, what becomes of its answers, and when nothing is built."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from architect.compiler import compile_team
from architect.design.designer import Designed, design_team
from architect.design.document import DesignDocument, SpecWriter
from architect.team_world import TeamWorld
from starling.core.agents import Persona
from starling.core.events.build_events import Checks, Design
from starling.core.teams.building import BuildCase, BuildConstraints, BuildRequest, Candidate, Section
from starling.core.teams.spec import Criterion, TeamGrants, TeamLimits, TeamSpec
from starling.core.teams.stars import Member, StarLimits, StarSpec
from starling.core.tool_calls import Effect
from tests.support.in_memory_build import InMemoryBuild, is_sound, tool, world_of

TIME = tool("time.get_current_time", "Get the current time in a time zone", timezone={"type": "string"})
DISK = tool("machine.disk_usage", "Show how full the disks of this machine are")
HEALTH = tool("machine.load", "Show the load and health of this machine")
WRITE = tool("files.write_file", "Write a text into a file", Effect.UNSAFE, path={"type": "string"})
TOOLS = (TIME, DISK, HEALTH, WRITE)
WORLD = world_of(*TOOLS)
GOAL = "Build me a team that watches the health of this machine and writes the findings into a report file"


def member(name: str, *tools: str, parts: tuple[int, ...] = (), **more: Any) -> Mapping[str, Any]:
    server = {"server": tools[0].partition(".")[0]} if tools else {}
    about = {"name": name, "role": f"the {name}", "goal": f"do what a {name} does", "parts": list(parts)}
    return {**about, **server, "tools": list(tools), **more}


def example(request: str, *tools: str, **more: Any) -> Mapping[str, Any]:
    return {"request": request, "must_call": list(tools), **more}


WATCHER, WRITER = member("watcher", "machine.load", parts=(1,)), member("writer", "files.write_file", parts=(2,))
EXAMPLES = (
    example("Show the load of this machine.", "machine.load"),
    example("Write hello into /tmp/report.txt.", "files.write_file"),
)
SOUND = {"name": "health", "purpose": "Watches a machine.", "members": [WATCHER, WRITER], "examples": [*EXAMPLES]}


async def designed(
    *answers: Mapping[str, Any], goal: str = GOAL, world: TeamWorld = WORLD, base: TeamSpec | None = None, **more: Any
) -> tuple[Designed, InMemoryBuild]:
    run_parts = {key: more.pop(key) for key in ("may_be_asked", "reply", "stars") if key in more}
    run = InMemoryBuild(more.pop("tools", TOOLS), [*answers], **run_parts)
    return await design_team(BuildRequest(goal=goal, **more), world, base, run), run


def section(run: InMemoryBuild, name: str, asked: int = -1) -> Section | None:
    return next((one for one in run.asked[asked] if one.name == name), None)


async def test_sound_answer_becomes_a_spec_with_ids_criteria_and_approval_of_its_own() -> None:
    found, run = await designed(SOUND)

    assert found.spec
    assert (is_sound(found), found.attempt, run.answers) == (True, 1, [])
    assert [(one.name, one.approval) for one in found.spec.members] == [("watcher", "policy"), ("writer", "effects")]
    assert [(one.id, one.must_call) for one in found.spec.examples] == [
        ("example_1", ("machine.load",)),
        ("example_2", ("files.write_file",)),
    ]
    assert [(one.kind, one.value) for one in found.spec.criteria] == [
        ("judged", None),
    ]
    assert [one.criteria for one in found.spec.examples] == [(found.spec.criteria[0].id,)] * 2
    assert [(one.part, one.members) for one in found.parts] == [
        ("watches the health of this machine", ("watcher",)),
        ("writes the findings into a report file", ("writer",)),
    ]


async def test_designer_that_writes_no_examples_leaves_those_of_the_team_as_they_are() -> None:
    said = {"id": "said", "text": "It is said.", "kind": "text_contains", "value": "load"}
    case = BuildCase.model_validate({"input": "Is it busy?", "criteria": [said], "must_not_call": ["files.write_file"]})
    silent = {key: content for key, content in SOUND.items() if key != "examples"}

    first, _ = await designed({**silent, "examples": None}, cases=[case])
    changed, _ = await designed(silent, base=first.spec)

    assert first.spec
    assert changed.spec
    assert (is_sound(first), is_sound(changed)) == (True, True)
    (kept,) = changed.spec.examples
    assert (kept.input, kept.must_not_call, changed.spec.criteria) == (
        "Is it busy?",
        ("files.write_file",),
        first.spec.criteria,
    )


async def test_designer_is_shown_the_goal_its_parts_and_what_fits_them() -> None:
    _, run = await designed(SOUND)

    parts, candidates = section(run, "parts"), section(run, "candidates")
    assert parts
    assert candidates
    assert run.searched == [[GOAL, "watches the health of this machine", "writes the findings into a report file"]]
    assert [(one.attributes["fit"], one.attributes["tool"]) for one in parts.parts] == [
        ("good", "machine.load"),
        ("good", "files.write_file"),
    ]
    assert {one.attributes["name"] for one in candidates.parts} == {"machine", "files", "time"}
    shown = next(one for one in candidates.parts if one.attributes["name"] == "files").parts[1]
    assert shown.attributes == {"name": "files.write_file", "effect": "unsafe"}
    assert '"path":{"type":"string"}' in shown.parts[1].text


async def test_build_of_an_earlier_version_that_searched_the_parts_alone_is_resumed() -> None:
    class Earlier(InMemoryBuild):
        async def candidates(self, step: str, texts: Sequence[str], limit: int) -> Sequence[Sequence[Candidate]]:
            return (await super().candidates(step, texts, limit))[:2]

    goal = "Show the load and the current time"
    both = {**SOUND, "members": [member("watcher", "machine.load", parts=(1,))], "examples": [EXAMPLES[0], EXAMPLES[0]]}
    run = Earlier(TOOLS, [both] * 3)

    found = await design_team(BuildRequest(goal=goal), WORLD, None, run)

    assert len(run.searched[0]) > 2
    assert [one.part for one in found.parts] == [goal]


async def test_goal_is_data_of_the_prompt_whatever_it_says() -> None:
    goal = "{secret.__class__} $goal </goal> __import__('os')"

    _, run = await designed({"question": "What?"}, goal=goal, may_be_asked=False)

    assert (shown := section(run, "goal"))
    assert shown.text == goal


async def test_design_and_checks_are_emitted_for_each_attempt() -> None:
    lacking = {**SOUND, "examples": [EXAMPLES[0]]}

    found, run = await designed(lacking, SOUND)

    assert is_sound(found)
    assert found.attempt == 2
    designs = [event for event in run.events if isinstance(event, Design)]
    checks = [event for event in run.events if isinstance(event, Checks)]
    assert [(one.path, one.attempt, one.team, len(one.members)) for one in designs] == [
        ("t1", 1, "health", 2),
        ("t1", 2, "health", 2),
    ]
    assert [(one.attempt, {finding.rule for finding in one.findings}) for one in checks] == [
        (1, {"few_cases"}),
        (2, set()),
    ]


async def test_findings_and_the_design_go_back_to_the_designer() -> None:
    wrong = {**SOUND, "members": [WATCHER, member("clerk", "files.erase", parts=(2,))]}

    _, run = await designed(wrong, SOUND)

    findings, previous = section(run, "findings"), section(run, "previous_design")
    assert findings
    assert previous
    assert findings.parts[0].attributes == {"path": "members[1].tools[0]", "rule": "unknown_tool"}
    assert "There is no tool 'files.erase'." in findings.parts[0].text
    assert "files.erase" in previous.text


async def test_design_with_findings_after_two_repairs_is_given_up() -> None:
    lacking = {**SOUND, "examples": []}

    found, run = await designed(lacking, lacking, lacking, SOUND)

    assert (is_sound(found), found.attempt) == (False, 3)
    assert {one.rule for one in found.findings} == {"few_cases"}
    assert len(run.asked) == 3


async def test_answer_that_breaks_the_format_of_specs_is_repaired() -> None:
    found, run = await designed({"name": "x", "purpose": "nothing"}, SOUND)

    assert is_sound(found)
    assert [one.rule for event in run.events if isinstance(event, Checks) for one in event.findings] == ["format"]


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        pytest.param({"members": [{"name": "a", "tools": ["search the web"]}]}, "members[0].tools[0]", id="tool"),
        pytest.param({"members": [{"name": "a", "team": "My Team!"}]}, "members[0].team", id="team"),
        pytest.param({"members": [{"name": "a", "server": "s" * 101}]}, "members[0].server", id="server"),
        pytest.param({"examples": [example("Show it.", "search the web")]}, "examples[0].must_call[0]", id="must-call"),
        pytest.param(
            {"examples": [example("Show it.", judged=[chr(0x4E00 + number) for number in range(1_100)])]},
            "criteria",
            id="criteria-without-latin-letters",
        ),
    ],
)
async def test_part_that_breaks_the_format_of_specs_is_a_finding_of_its_place(
    wrong: Mapping[str, Any], path: str
) -> None:
    found, run = await designed({**SOUND, **wrong}, SOUND)

    first = next(event for event in run.events if isinstance(event, Checks))
    assert is_sound(found)
    assert first.findings[0].rule == "format"
    assert first.findings[0].path == path


async def test_blank_texts_of_a_design_are_taken_as_left_out() -> None:
    blank = {**WATCHER, "role": " ", "goal": "\n", "backstory": " "}
    examples = [{**one, "contains": [" "], "judged": [" "]} for one in EXAMPLES]

    found, _ = await designed({**SOUND, "purpose": " ", "members": [blank, WRITER], "examples": examples})

    assert is_sound(found)
    assert found.spec
    assert (found.spec.purpose, found.spec.members[0].role, found.spec.members[0].goal) == (GOAL, "watcher", "watcher")


async def test_resumed_design_emits_nothing_twice_and_is_the_same() -> None:
    lacking = {**SOUND, "examples": [EXAMPLES[0]]}
    first, run = await designed(lacking, SOUND)
    resumed = InMemoryBuild(TOOLS, journal=run.journal)

    again = await design_team(BuildRequest(goal=GOAL), world_of(*TOOLS, agents=["health"]), None, resumed)

    assert again == first
    assert resumed.events == []
    assert resumed.asked == run.asked


async def test_vague_goal_is_asked_about_once_and_designed_with_the_answer() -> None:
    vague = {"question": "What should it do?", "options": ["Watch", "Write"]}

    found, run = await designed(vague, SOUND, goal="Help me", reply="Watch the health of this machine")

    assert is_sound(found)
    assert run.questions == [("What should it do?", ["Watch", "Write"])]
    assert (told := section(run, "answer"))
    assert (told.text, told.attributes) == ("Watch the health of this machine", {"question": "What should it do?"})
    assert run.searched[1] == ["Help me\nWatch the health of this machine", "Watch the health of this machine"]


@pytest.mark.parametrize(
    ("may_ask", "asked"), [pytest.param(True, 1, id="no answer"), pytest.param(False, 0, id="nobody to ask")]
)
async def test_goal_that_stays_vague_has_no_team(may_ask: bool, asked: int) -> None:
    vague = {"question": "What should it do?"}

    found, run = await designed(vague, vague, goal="Help me", may_be_asked=may_ask)

    assert found == Designed(None, question="What should it do?")
    assert len(run.questions) == asked


THREE = "Watch the health of this machine. Write the report into a file. Mail it to Bob."


@pytest.mark.parametrize("partial", [pytest.param(False, id="refused"), pytest.param(True, id="accepted")])
@pytest.mark.parametrize(
    "named", [pytest.param(3, id="number"), pytest.param("Email the report", id="text with words of another part")]
)
async def test_missing_part_that_no_member_does_is_reported(named: int | str, partial: bool) -> None:
    answer = {**SOUND, "missing": [named]}

    found, run = await designed(answer, goal=THREE, partial=partial)

    assert (found.spec is not None) is partial
    assert [(one.part, one.nearest) for one in found.missing] == [("Mail it to Bob.", ["machine", "files", "time"])]
    assert isinstance(run.events[0], Design)
    assert run.events[0].missing == [*found.missing]
    assert [event.type for event in run.events[1:]] == (["checks"] if partial else [])


@pytest.mark.parametrize(
    "named", [pytest.param("2", id="number"), pytest.param("writes the findings", id="text"), pytest.param(2, id="int")]
)
async def test_missing_part_that_a_member_does_goes_back_once_and_then_the_member_counts(named: int | str) -> None:
    answer = {**SOUND, "missing": [named]}

    found, run = await designed(answer, answer)

    checks = [[one.path for one in event.findings] for event in run.events if isinstance(event, Checks)]
    assert (checks, run.answers) == ([["missing"], []], [])
    assert (is_sound(found), found.missing) == (True, ())
    assert [one.members for one in found.parts] == [("watcher",), ("writer",)]


OTHERS = tuple(tool(f"other{number}.idle", "Hums") for number in range(10))
CLAIMED, UNCLAIMED = {**SOUND, "members": [WATCHER, {**WRITER, "parts": [2, 3]}]}, SOUND


@pytest.mark.parametrize(
    ("answers", "rules", "missing"),
    [
        pytest.param([CLAIMED, CLAIMED], [["doubted_part"], []], [], id="claimed again"),
        pytest.param([CLAIMED, UNCLAIMED], [["doubted_part"]], ["bestelle Pizza"], id="given up"),
        pytest.param([UNCLAIMED, CLAIMED], [["unserved_part"], []], [], id="forgotten"),
        pytest.param([UNCLAIMED, UNCLAIMED], [["unserved_part"]], ["bestelle Pizza"], id="forgotten twice"),
        pytest.param([{**UNCLAIMED, "missing": [3]}], [], ["bestelle Pizza"], id="named by its number"),
        pytest.param([{**UNCLAIMED, "missing": ["bestelle Pizza"]}], [], ["bestelle Pizza"], id="by its text"),
        pytest.param([{**UNCLAIMED, "missing": ["order it"]}], [], ["bestelle Pizza"], id="by another text"),
    ],
)
async def test_part_that_the_search_doubts_goes_back_once_and_then_the_answer_counts(
    answers: Sequence[Mapping[str, Any]], rules: Sequence[Sequence[str]], missing: Sequence[str]
) -> None:
    goal = "Watch the health of this machine. Write the findings into a report file. bestelle Pizza"

    found, run = await designed(*answers, goal=goal, tools=(*TOOLS, *OTHERS))

    checks = [[one.rule for one in event.findings] for event in run.events if isinstance(event, Checks)]
    assert (checks, run.answers) == (rules, [])
    assert [one.part for one in found.missing] == missing
    assert is_sound(found) is not bool(missing)


async def test_part_that_is_forgotten_beside_one_that_is_named_goes_back() -> None:
    forgotten = {**SOUND, "members": [WATCHER], "examples": [EXAMPLES[0]] * 2, "missing": [3]}

    found, run = await designed(forgotten, {**SOUND, "missing": [3]}, goal=THREE, partial=True)

    checks = [event.findings for event in run.events if isinstance(event, Checks)]
    assert "parts[2]" in {one.path for one in checks[0]}
    assert [one.part for one in found.missing] == ["Mail it to Bob."]


async def test_own_name_is_kept_and_a_designed_one_gets_a_suffix_if_it_is_taken() -> None:
    world = world_of(*TOOLS, agents=["health", "health_2"])

    own, _ = await designed(SOUND, name="mine", world=world)
    other, _ = await designed(SOUND, world=world)

    assert own.spec
    assert other.spec
    assert (own.spec.name, other.spec.name) == ("mine", "health_3")


async def test_designed_name_that_looks_like_another_gets_a_suffix() -> None:
    found, _ = await designed({**SOUND, "name": "hea1th"}, world=world_of(*TOOLS, agents=["health"]))

    assert found.spec
    assert (found.spec.name, found.findings) == ("hea1th_2", ())


@pytest.mark.parametrize(
    "name",
    ["architect", "arch1tect", "Supervisor", "mcp_agent_time", "mcp_agent_mcp_agent_x", "mcpagents", "QA", "??"],
)
async def test_designed_name_that_is_reserved_is_changed(name: str) -> None:
    found, _ = await designed({**SOUND, "name": name})

    assert is_sound(found)


async def test_own_cases_are_examples_with_their_criteria() -> None:
    criterion = Criterion(id="says_load", text="It names the load.", kind="text_contains", value="load average")
    case = BuildCase(input="How is the machine?", criteria=(criterion,), must_call=("machine.load",))

    found, _ = await designed(SOUND, cases=(case,))

    assert found.spec
    assert is_sound(found)
    added = found.spec.examples[-1]
    assert (added.id, added.input, added.must_call) == ("case_1", "How is the machine?", ("machine.load",))
    known = {one.id: one for one in found.spec.criteria}
    assert [(known[one].kind, known[one].value) for one in added.criteria] == [("text_contains", "load average")]


async def test_fault_of_an_own_case_is_named_by_its_place_among_the_cases() -> None:
    demand = Criterion(id="short", text="It is short.", kind="text_contains")
    case = BuildCase(input="How late is it?", criteria=(demand,), must_call=("time.get_current_time",))

    found, _ = await designed(SOUND, SOUND, SOUND, cases=(case,))

    assert {one.path for one in found.findings} == {"cases[0].must_call[0]", "cases.criteria[0].value"}


async def test_servers_that_were_not_permitted_are_neither_shown_nor_used() -> None:
    allowed = BuildConstraints(servers=("machine", "files"), members=3, text="Be polite.")
    using_time = {**SOUND, "members": [WATCHER, WRITER, member("clock", "time.get_current_time")]}

    found, run = await designed(using_time, SOUND, constraints=allowed)

    assert is_sound(found)
    assert found.spec
    assert found.spec.limits.members == 3
    assert (candidates := section(run, "candidates", 0))
    assert {one.attributes["name"] for one in candidates.parts} == {"machine", "files"}
    assert (limits := section(run, "constraints", 0))
    assert [(one.name, one.text) for one in limits.parts] == [
        ("servers", "machine, files"),
        ("most_members", "3"),
        ("demand", "Be polite."),
    ]
    checks = next(event for event in run.events if isinstance(event, Checks))
    assert "constraints" in {one.rule for one in checks.findings}


async def test_more_members_than_permitted_are_a_finding() -> None:
    found, _ = await designed(SOUND, SOUND, SOUND, constraints=BuildConstraints(members=1))

    assert {one.rule for one in found.findings} == {"too_many_members"}


async def test_changed_team_keeps_its_name_limits_and_what_the_designer_does_not_write() -> None:
    first, _ = await designed(SOUND)
    assert first.spec
    watcher = first.spec.members[0].model_copy(update={"runtime": "native", "reflect": "risky"})
    fixed = first.spec.examples[0].model_copy(update={"id": "load", "fixtures": ()})
    base = first.spec.model_copy(
        update={
            "name": "kept",
            "members": (watcher, *first.spec.members[1:]),
            "limits": first.spec.limits.model_copy(update={"seconds": 60.0}),
            "examples": (fixed, *first.spec.examples[1:]),
        }
    )
    clock = member("clock", "time.get_current_time", parts=(1,))
    more = {
        **SOUND,
        "name": "other",
        "members": [WATCHER, WRITER, clock],
        "examples": [*EXAMPLES, example("What is the current time in UTC?", "time.get_current_time")],
    }

    found, run = await designed(more, goal="Also tell the current time in a time zone", base=base)

    assert found.spec
    assert is_sound(found)
    assert (found.spec.name, found.spec.limits.seconds) == ("kept", 60.0)
    assert [(one.name, one.runtime) for one in found.spec.members] == [
        ("watcher", "native"),
        ("writer", "crewai"),
        ("clock", "crewai"),
    ]
    assert (shown := section(run, "current_team"))
    assert '"name": "kept"' in shown.text


async def test_changed_team_keeps_its_grants_and_gets_what_new_members_need() -> None:
    first, _ = await designed(SOUND)
    assert first.spec
    watcher = first.spec.members[0].model_copy(update={"tools": ()})
    grants = TeamGrants(tools=("machine.load", "files.write_file"))
    base = first.spec.model_copy(update={"members": (watcher, *first.spec.members[1:]), "grants": grants})
    clock = {**member("clock", parts=(1,)), "server": "time"}
    told = example("What is the current time in UTC?", "time.get_current_time")
    members = [{**WATCHER, "tools": list[str]()}, WRITER, clock]
    more: Mapping[str, Any] = {**SOUND, "members": members, "examples": [*EXAMPLES, told]}

    found, _ = await designed(more, goal="Also tell the current time in a time zone", base=base)

    assert found.spec
    assert is_sound(found)
    star = compile_team(found.spec, WORLD, creator=None, activator=None)
    assert [one.tools for one in star.members] == [("machine.load",), ("files.write_file",), ("time.get_current_time",)]


async def test_limits_of_a_changed_team_are_lowered_to_those_of_the_callers_runs() -> None:
    first, _ = await designed(SOUND)
    assert first.spec
    base = first.spec.model_copy(update={"limits": TeamLimits(seconds=900, iterations=3, tokens=5_000)})
    world = replace(WORLD, limits=StarLimits(seconds=300, iterations=6))

    found, _ = await designed(SOUND, base=base, world=world)

    assert found.spec
    assert is_sound(found)
    assert found.spec.limits == TeamLimits(seconds=300, iterations=3, tokens=5_000)


def test_design_among_thirty_thousand_tools_takes_no_time_for_each_of_its_tools() -> None:
    world = world_of(*(tool(f"server{one}.tool{two}", "Does it") for one in range(300) for two in range(100)))
    names = [f"server1.tool{number}" for number in range(100)]
    written = [name.title() for name in names]
    members, examples = [{**member("one", *written), "server": "server1"}], [example("Do it.", *written[:50])]
    document = DesignDocument.model_validate({**SOUND, "members": members, "examples": examples})
    begun = time.process_time()

    spec = SpecWriter(BuildRequest(goal=GOAL), world).spec(document)

    assert (spec.members[0].tools, spec.examples[0].must_call) == ((*names,), (*names[:50],))
    assert time.process_time() - begun < 3  # about 20 where all tools are read for each of them


async def test_finished_team_may_be_a_member() -> None:
    inner = Member(name="looker", persona=Persona(role="r", goal="g"), server="machine", tools=("machine.load",))
    star = StarSpec(name="watchers", purpose="Watches the health of machines.", members=(inner,))
    world = world_of(*TOOLS, teams={"watchers": star})
    document = {**SOUND, "members": [member("watch", team="watchers", parts=(1,)), WRITER]}

    found, run = await designed(document, world=world, stars={"watchers": star})

    assert found.spec
    assert [(one.name, one.team) for one in found.spec.members] == [("watch", "watchers"), ("writer", None)]
    assert (candidates := section(run, "candidates"))
    assert ("team", "watchers") in [(one.name, one.attributes["name"]) for one in candidates.parts]


@pytest.mark.parametrize(
    ("written", "full"),
    [
        pytest.param("machine.load", "machine.load", id="full"),
        pytest.param("load", "machine.load", id="without the server"),
        pytest.param("Machine.Load", "machine.load", id="in other letters"),
    ],
)
async def test_tools_of_a_member_are_read_tolerantly(written: str, full: str) -> None:
    watcher = {**WATCHER, "server": "machine", "tools": [written]}

    found, _ = await designed({**SOUND, "members": [watcher, WRITER]})

    assert found.spec
    assert found.spec.members[0].tools == (full,)
