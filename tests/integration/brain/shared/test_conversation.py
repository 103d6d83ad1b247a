"""Threads: a turn sees what was said before, and states come back from the database as they were."""

from functools import partial

import pytest
from psycopg import AsyncConnection

from brain.conversation.repository import ConversationRepository, push_states
from brain.conversation.states import (
    KINDS,
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    FinishedState,
    UserMessageState,
    encode,
)
from starling.core.agents import LLMAgentConfig
from starling.core.errors import InvalidRequestError
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.writer import RunWriter
from tests.integration.brain.conftest import Open
from tests.support.model_script import Answer
from tests.support.platform import BENCH, CALLER, Platform, ScriptedModel, calls, decision, task, verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVERY_KIND = tuple(KINDS.values())


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


async def test_completed_run_stores_its_conversation_states_on_the_branch(
    platform: Platform, script: ScriptedModel
) -> None:
    script.run(decision(task("t1", BENCH, "look")), t1=calls(("look", {"thing": "disk"})), qa=Answer("Fine [1]."))
    key = await platform.accept("How is the disk?")
    claim = await platform.claim(key)

    await platform.brain.execute(claim)

    left = await ConversationRepository(platform.services.storage.engine).last(claim.run, EVERY_KIND, 10)
    assert left == [
        UserMessageState(text="How is the disk?"),
        AgentCallState(agent_id=BENCH, message="look", correlation_id=f"{key.id}/t1"),
        AgentResultState(correlation_id=f"{key.id}/t1", result={"status": "approved", "content": "the disk is fine"}),
        AssistantMessageState(content="Fine [1]."),
        FinishedState(),
    ]


async def test_states_are_read_in_order_filtered_by_kind_and_limited_in_number(
    platform: Platform, module_database_url: str
) -> None:
    claim = await platform.claim(await platform.accept("Hi."))
    said = [UserMessageState(text=f"text {number} {'x' * 5_000}") for number in range(3)]
    writer = RunWriter(platform.services.storage.engine, claim, platform.services.storage.broadcast)
    for moment, states in ((1.0, (said[0], FinishedState())), (2.0, said[1:])):
        writer.add(partial(push_states, claim.run, [encode(state, moment) for state in states]))
        await writer.flush()

    conversations = ConversationRepository(platform.services.storage.engine)
    last = await conversations.last(claim.run, [UserMessageState], 2)
    none = await conversations.last(claim.run, [AssistantMessageState], 2)

    assert last == said[1:]
    assert none == []


@pytest.mark.parametrize("change", [b"t = 'FutureState'", b"v = 2"], ids=["kind", "version"])
async def test_state_of_a_newer_version_is_refused(
    platform: Platform, script: ScriptedModel, module_database_url: str, change: bytes
) -> None:
    script.supervisor(decision(reply="Hello."))
    first = await platform.claim(await platform.accept("Hi."))
    await platform.brain.execute(first)
    async with await AsyncConnection.connect(module_database_url, autocommit=True) as connection:
        await connection.execute(b"UPDATE states SET " + change)

    with pytest.raises(InvalidRequestError, match="Upgrade Starling"):
        await ConversationRepository(platform.services.storage.engine).last(first.run, _anything(), 10)


def _anything() -> list[type]:
    return [*EVERY_KIND, type("FutureState", (UserMessageState,), {})]
