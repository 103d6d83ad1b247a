"""Threads: a turn sees what was said before, and states come back from the database as they were."""

from dataclasses import replace

import pytest
from psycopg import AsyncConnection

from brain.history import history_messages
from starling.app.threads import GivenState
from starling.core.agents import LLMAgentConfig
from starling.core.conversation.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    FinishedState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    UserResponseState,
    WaitingState,
    encode,
)
from starling.core.conversation.turn import PlacedState, states_of
from starling.core.errors import InvalidRequestError
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.conversations import ConversationRepository, read_line, reader_of
from tests.integration.brain.conftest import Open
from tests.support.interrupted_runs import answer_interrupts, execute_run
from tests.support.model_script import Answer
from tests.support.platform import BENCH, CALLER, Platform, ScriptedModel, calls, decision, task, verdict

THREAD = "thread"
FOUND = {"status": "succeeded", "content": "the disk is fine", "verdict": "APPROVED"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_prompt_of_the_second_turn_holds_the_first_turn(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(reply="I am <Starling>."), decision(reply="As I said."))

    await platform.ask("Who are you?")
    await platform.ask("Who?")

    history = platform.model.bodies[1]["messages"][1]["content"]
    assert '<message role="user">Who are you?</message>' in history
    assert '<message role="assistant">I am &lt;Starling&gt;.</message>' in history


async def test_prompt_holds_no_messages_of_another_thread(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(reply="Hello."))

    await platform.ask("Who are you?", thread="one")
    await platform.ask("Who?", thread="two")

    assert "Who are you?" not in platform.model.bodies[1]["messages"][1]["content"]


async def test_agents_of_the_last_turn_are_shown_in_the_next_one_of_their_thread(
    opened: Open, script: ScriptedModel
) -> None:
    script.run(decision(task("t1", BENCH)), *[decision(reply="Noted.")] * 2, t1=calls(("look", {"thing": "disk"})))
    async with opened(shortlist=1) as platform:
        for name in ("poet", "singer"):
            config = LLMAgentConfig.model_validate({"id": name, "behavior_template": f"{name}: haiku, songs."})
            await platform.services.agents.create(CALLER, config, Actor.local("test"))

        await platform.ask("Look at the disk.", thread="one")
        await platform.ask("A haiku by the poet, please.", thread="one")
        await platform.ask("A haiku by the poet, please.", thread="two")

    _, again, elsewhere = (body["messages"][1]["content"] for body in platform.requests_containing("<agents>"))
    shown = '<agent name="mcp_agent_bench"'
    assert (shown in again, shown in elsewhere) == (True, False)
    assert '<agent name="poet"' in elsewhere


async def test_supervisor_of_the_next_turn_is_shown_the_tasks_of_the_last_one_that_had_any(
    platform: Platform, script: ScriptedModel
) -> None:
    script.run(
        decision(task("t1", BENCH, "look at the disk")),
        *[decision(reply="Noted.")] * 2,
        t1=calls(("look", {"thing": "disk"})),
    )

    for text in ("How is the disk?", "Thanks.", "And now?"):
        await platform.ask(text)

    first, *later = (body["messages"][1]["content"] for body in platform.requests_containing("You supervise agents"))
    shown = '"last_plan": [{"agent": "mcp_agent_bench", "task": "look at the disk", "status": "approved"}]'
    assert "last_plan" not in first
    assert [shown in prompt for prompt in later] == [True, True]


async def test_turn_that_asked_after_one_with_tasks_goes_on_with_the_request_that_it_sent_before(
    platform: Platform, script: ScriptedModel
) -> None:
    script.run(
        decision(task("t1", BENCH, "look at the disk")),
        decision(question="Which disk?"),
        decision(reply="Noted."),
        t1=calls(("look", {"thing": "disk"})),
    )
    await platform.ask("How is the disk?")
    key = await platform.accept("And now?")
    await execute_run(platform, key)

    await answer_interrupts(platform, key, answer="The left one.")
    stream = await platform.finish(key)

    assert (stream.status, stream.reply, stream.codes) == ("succeeded", "Noted.", [])


async def test_planner_prompt_holds_ten_messages_and_agent_prompt_five(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(*(decision(reply=f"reply {turn}.") for turn in range(6)), decision(task("t1", "generalist")))
    script.agent("t1", Answer("Done."))
    script.reviewer(verdict("APPROVED"))

    for turn in range(7):
        await platform.ask(f"turn {turn}.")

    planner = platform.requests_containing("You supervise agents")[-1]["messages"][1]["content"]
    worker = platform.requests_containing('<task id="t1">')[-1]["messages"][1]["content"]
    said = [f"{what} {turn}." for turn in range(6) for what in ("turn", "reply")]
    assert [text for text in said if text in planner] == said[-10:]
    assert [text for text in said if text in worker] == said[-5:]


async def stored(platform: Platform, key: RunKey) -> list[PlacedState]:
    """The states on the branch of a run, which has to be the only one of its thread."""
    rows = await read_line(reader_of(platform.services.storage.engine, key.tenant), THREAD, "main", limit=10)
    assert [(row.position, row.length, row.run_id) for row in rows] == [(1, len(rows[0].states()), key.id)]
    return rows[0].states()


async def derived(platform: Platform, key: RunKey) -> list[PlacedState]:
    return states_of(await platform.services.runs.documents.read(key, ("tasks",)))


async def test_completed_run_stores_the_states_that_its_document_gives(
    platform: Platform, script: ScriptedModel
) -> None:
    script.run(decision(task("t1", BENCH, "look")), t1=calls(("look", {"thing": "disk"})), qa=Answer("Fine [1]."))
    key = await platform.accept("How is the disk?")
    await platform.finish(key)

    states = await stored(platform, key)

    assert [(one.state, one.agent, one.parent) for one in states] == [
        (UserMessageState(text="How is the disk?"), "supervisor", None),
        (AgentCallState(agent_id=BENCH, message="look", correlation_id="t1"), BENCH, None),
        (ToolCallState(id="t1.0.0", function_name="bench.look", arguments={"thing": "disk"}), BENCH, 1),
        (ToolResultState(tool_call_id="t1.0.0", tool_name="bench.look", result=FOUND), BENCH, 1),
        (AgentResultState(correlation_id="t1", result={**FOUND, "status": "approved"}), BENCH, None),
        (AssistantMessageState(content="Fine [1]."), "supervisor", None),
        (FinishedState(), "supervisor", None),
    ]
    assert [replace(one, ts=0) for one in states] == [replace(one, ts=0) for one in await derived(platform, key)]


async def test_states_of_a_run_that_waited_for_an_answer_have_the_question_and_the_answer(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(question="Which one?"), decision(reply="The first one."))
    key = await platform.accept("How is the disk?")
    await platform.brain.execute(await platform.claim(key))
    waiting = [one.state for one in await derived(platform, key)]
    await platform.accept("The first.")  # a message to a thread that waits is the answer
    await platform.finish(key)

    states = [one.state for one in await stored(platform, key)]

    assert states[1] == AssistantMessageState(content="Which one?")
    assert isinstance(states[2], WaitingState)
    assert states[3:5] == [UserResponseState(text="The first."), AssistantMessageState(content="The first one.")]
    assert waiting == states[:3]


async def test_history_has_states_in_rows_of_their_own_and_follows_forks_to_their_place_in_the_parent(
    platform: Platform, script: ScriptedModel, module_database_url: str
) -> None:
    script.supervisor(*(decision(reply=f"reply {number}.") for number in range(2)))
    first = await platform.claim(await platform.accept("turn 0."))
    await platform.brain.execute(first)
    await platform.ask("turn 1.")
    old, tenant = encode(UserMessageState(text="an old row"), 1.0), platform.caller.tenant
    async with await AsyncConnection.connect(module_database_url, autocommit=True) as connection:
        await connection.execute("UPDATE states SET position = position + 1")
        await connection.execute("UPDATE branches SET tip = tip + 1")
        await connection.execute(
            "INSERT INTO states (tenant, thread_id, branch_id, position, v, t, ts, data, compressed)"
            " VALUES (%s, %s, 'main', 1, %s, %s, %s, %s, %s)",
            (tenant, THREAD, old.v, old.t, old.ts, old.data, old.compressed),
        )
        await connection.execute(
            "INSERT INTO branches (tenant, thread_id, id, parent, fork_position, tip)"
            " VALUES (%s, %s, 'other', 'main', 5, 5)",
            (tenant, THREAD),
        )
    run, conversations = first.run, ConversationRepository(platform.services.storage.engine)

    main = (await conversations.recent(run, 3)).said
    other = (await conversations.recent(replace(run, branch_id="other"), 10)).said
    rows = reader_of(platform.services.storage.engine, tenant)
    pages = [await read_line(rows, THREAD, "other", after=n, limit=1) for n in (0, 1, 4, 5)]

    said = ["an old row", "turn 0.", "reply 0.", "turn 1.", "reply 1."]
    assert [message["content"] for message in history_messages(main)] == said[2:]
    assert [message["content"] for message in history_messages(other)] == said[:4]
    assert [[(row.position, row.length) for row in page] for page in pages] == [[(1, 1)], [(2, 3)], [(5, 1)], []]


async def test_supervisor_is_shown_the_last_messages_before_many_imports_without_any(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(reply="As I said."))
    asks = {"content": "", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]}
    calls_alone = [
        GivenState(t="AssistantMessageState", data=asks),
        GivenState(t="ToolCallState", data={"id": "c", "function_name": "f", "arguments": {}}),
        GivenState(t="ToolResultState", data={"tool_call_id": "c", "tool_name": "f", "result": {}}),
    ]
    said = [GivenState(t="UserMessageState", data={"text": f"message {number}."}) for number in range(12)]
    for state in (*said, *calls_alone * 40):
        await platform.services.threads.append(platform.caller.tenant, THREAD, None, [], [state])

    await platform.ask("Who?")

    prompt = platform.model.bodies[0]["messages"][1]["content"]
    assert [number for number in range(12) if f">message {number}.<" in prompt] == list(range(2, 12))


@pytest.mark.parametrize("change", [b"t = 'FutureState'", b"v = 2"], ids=["kind", "version"])
async def test_state_of_a_newer_version_is_refused(
    platform: Platform, script: ScriptedModel, module_database_url: str, change: bytes
) -> None:
    script.supervisor(decision(reply="Hello."))
    key = await platform.accept("Hi.")
    await platform.finish(key)
    async with await AsyncConnection.connect(module_database_url, autocommit=True) as connection:
        await connection.execute(b"UPDATE states SET " + change)

    with pytest.raises(InvalidRequestError, match="Upgrade Starling"):
        await stored(platform, key)
