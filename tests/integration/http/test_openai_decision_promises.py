"""What is promised about decisions in conversations: who says what decides, and nothing else does."""

import asyncio
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion
from sqlalchemy import text

from starling.core.ids import new_id
from starling.core.principal import Grant, Scope
from tests.support.chat_platform import ChatPlatform, chat_platform, extension_of, platform_client, text_of
from tests.support.effect_recorder import AGENT
from tests.support.model_script import Answer
from tests.support.platform import calls, decision, task

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
CODE = re.compile(r"\b(?:approve|done) ([0-9A-Z]{6,})")
QUESTION = decision(question="Which disk?", options=["the first", "the second"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ChatPlatform]:
    """A platform whose `charge` needs an approval, and whose `invoice` may last a second, and is in doubt then."""
    async with chat_platform(module_database_url, tmp_path_factory.mktemp("platform")) as platform:
        await platform.put("/v1/servers/effects/tools/invoice", json={"timeout": 1, "approval": "never"})
        yield platform


@pytest.fixture
def platform(opened: ChatPlatform) -> ChatPlatform:
    opened.script.forget()
    opened.model.forget()
    return opened


@pytest_asyncio.fixture(loop_scope="module")
async def client(platform: ChatPlatform) -> AsyncGenerator[AsyncOpenAI]:
    async with platform_client(platform, await platform.key()) as client:
        yield client


@dataclass(slots=True)
class Talk:
    """A conversation of a client that sends all of it each time."""

    client: AsyncOpenAI
    messages: list[Any] = field(default_factory=list[Any])
    said: dict[str, Any] = field(default_factory=dict[str, Any])  # what the last answer says beside OpenAI's fields

    async def say(self, *contents: Any, system: str = "", **more: Any) -> str:
        """Send messages; keep them and the answer, and return it."""
        self.messages += [{"role": "user", "content": content} for content in contents]
        before = [{"role": "system", "content": system}] if system else []
        sent: dict[str, Any] = {"model": "starling", "messages": [*before, *self.messages], **more}
        create: Any = self.client.chat.completions.create
        told: ChatCompletion = await create(**sent)
        self.messages.append({"role": "assistant", "content": text_of(told)})
        self.said = extension_of(told)
        return text_of(told)

    def copy(self, client: AsyncOpenAI | None = None) -> "Talk":
        return Talk(client or self.client, list(self.messages), self.said)


def code_in(text: str) -> str:
    found = CODE.search(text)
    assert found, text
    return found[1]


def lowered(code: str) -> str:
    """Return the code with small letters; one of digits alone has none, and gets one more digit."""
    return f"{code}0" if code.isdigit() else code.lower()


def to_charge(platform: ChatPlatform, *whats: str) -> None:
    """Have runs charge for these, one each; later ones only say `Fine.`."""
    platform.script.run(
        *(decision(task(f"t{number}", AGENT)) for number, _ in enumerate(whats, 1)),
        decision(reply="Fine."),
        qa=Answer("Done [1]."),
        **{
            f"t{number}": [calls(("charge", {"what": what})), Answer("It is charged.")]
            for number, what in enumerate(whats, 1)
        },
    )


async def charging(platform: ChatPlatform, client: AsyncOpenAI, what: str) -> tuple[Talk, str]:
    """Return a conversation whose run waits for an approval, and its code."""
    to_charge(platform, what)
    dialogue = Talk(client)
    return dialogue, code_in(await dialogue.say("Charge it!"))


def done(platform: ChatPlatform, what: str) -> int:
    return [line["what"] for line in platform.effects.lines("done")].count(what)


def arrived(platform: ChatPlatform, what: str) -> int:
    return [line["what"] for line in platform.effects.lines("arrived")].count(what)


async def waits(platform: ChatPlatform, run_id: str) -> bool:
    return (await platform.get(f"/v1/runs/{run_id}"))["status"] == "waiting"


# Questions


@pytest.mark.parametrize("named", [False, True])
async def test_next_message_is_the_answer_to_a_question(
    platform: ChatPlatform, client: AsyncOpenAI, named: bool
) -> None:
    platform.script.supervisor(QUESTION, decision(reply="Fine."), decision(reply="And more."))
    more: dict[str, Any] = {"extra_headers": {"X-Thread-Id": new_id()}} if named else {}
    dialogue = Talk(client)

    question = await dialogue.say("Is the disk fine?", **more)
    asked = dialogue.said
    answer = await dialogue.say("The second.", **more)
    answered = dialogue.said
    later = await dialogue.say("Thanks.", **more)

    assert "Which disk?" in question
    assert (answer, later) == ("Fine.", "And more.")
    assert (answered["run_id"], answered["thread_id"]) == (asked["run_id"], asked["thread_id"])
    assert (asked["status"], answered["status"]) == ("waiting", "succeeded")
    assert dialogue.said["run_id"] != asked["run_id"]
    assert "The second." in str(platform.model.bodies[1]["messages"])


async def test_question_is_answered_through_previous_response_id_and_in_a_stream(
    platform: ChatPlatform, client: AsyncOpenAI
) -> None:
    platform.script.supervisor(QUESTION, decision(reply="Fine."))
    asked = await client.responses.create(model="starling", input="Is the disk fine?")
    events = [
        event
        async for event in await client.responses.create(
            model="starling", input="The second.", previous_response_id=asked.id, stream=True
        )
    ]

    last = events[-1]
    assert asked.status == "completed"
    assert "Which disk?" in asked.output_text
    assert last.type == "response.completed"
    assert (last.response.id, last.response.output_text) == (asked.id, "Fine.")


async def test_of_two_answers_to_a_question_of_a_named_thread_one_is_the_next_message(
    platform: ChatPlatform, client: AsyncOpenAI
) -> None:
    platform.script.supervisor(QUESTION, decision(reply="Fine."), decision(reply="And more."))
    named: dict[str, Any] = {"extra_headers": {"X-Thread-Id": new_id()}}
    dialogue = Talk(client)
    await dialogue.say("Is the disk fine?", **named)
    asked = dialogue.said["run_id"]

    async with platform_client(platform, await platform.key()) as another:
        talks = dialogue.copy(), dialogue.copy(another)
        told = await asyncio.gather(talks[0].say("The one.", **named), talks[1].say("The other.", **named))

    answered, later = sorted(zip(told, talks, strict=True), key=lambda one: one[1].said["run_id"])
    assert (answered[0], later[0]) == ("Fine.", "And more.")
    assert (answered[1].said["run_id"], later[1].said["thread_id"]) == (asked, answered[1].said["thread_id"])
    for number, (_, talk) in enumerate((answered, later), 1):
        assert talk.messages[-2]["content"] in str(platform.model.bodies[number]["messages"])


# Approvals


@pytest.mark.parametrize("streamed", [False, True])
async def test_approval_comes_with_the_exact_call_a_code_and_where_else_to_answer(
    platform: ChatPlatform, client: AsyncOpenAI, streamed: bool
) -> None:
    what = f'{new_id()} "quoted" ` ü'
    to_charge(platform, what)
    messages: list[Any] = [{"role": "user", "content": "Charge it!"}]
    if streamed:
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(model="starling", messages=messages, stream=True)
        ]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        run_id = (chunks[-1].model_extra or {})["starling"]["run_id"]
        assert chunks[-1].choices[0].finish_reason == "stop"
    else:
        dialogue = Talk(client, [])
        text = await dialogue.say("Charge it!")
        run_id = dialogue.said["run_id"]

    assert "effects.charge" in text
    assert '"what": ' in text
    assert "ü" in text
    assert '\\"quoted\\"' in text
    assert f"/v1/runs/{run_id}/resume" in text
    assert code_in(text)
    assert (await waits(platform, run_id), arrived(platform, what)) == (True, 0)


@pytest.mark.parametrize("in_parts", [False, True])
async def test_exact_word_and_code_have_the_call_made_once(
    platform: ChatPlatform, client: AsyncOpenAI, in_parts: bool
) -> None:
    dialogue, code = await charging(platform, client, what := new_id())
    run_id, again = dialogue.said["run_id"], dialogue.copy()
    said = _text(f"approve {code}") if in_parts else f"approve {code}"

    answer = await dialogue.say(said)
    repeated = await again.say(said)

    assert dialogue.said["run_id"] == run_id
    assert dialogue.said["status"] == "succeeded"
    assert dialogue.said["effects"][0]["name"] == "effects.charge"
    assert answer == repeated == "Done [1]."
    assert (done(platform, what), arrived(platform, what)) == (1, 1)


async def test_reject_and_code_end_the_call(platform: ChatPlatform, client: AsyncOpenAI) -> None:
    dialogue, code = await charging(platform, client, what := new_id())
    late = dialogue.copy()

    await dialogue.say(f"reject {code}")
    with pytest.raises(openai.ConflictError):
        await late.say(f"approve {code}")

    assert arrived(platform, what) == 0


NO_DECISIONS = (
    " approve {code}",
    "approve {code} ",
    "approve {code}\n",
    "\tapprove {code}\r\n",
    "\u00a0approve {code}",
    "Approve {code}",
    "APPROVE {code}",
    "approve {lower}",
    "approve  {code}",
    "approve\n{code}",
    "approve\t{code}",
    "approve\u00a0{code}",
    "\ufeffapprove {code}",
    "approve {code}.",
    "`approve {code}`",
    "> approve {code}",
    '"approve {code}"',
    "approve {code} please",
    "please approve {code}",
    "Yes. approve {code}",
    "approve {code} approve {code}",
    "approve{code}",
    "approve {short}",
    "approve {code}0",
    "approve",
    "approve 0000000000",
    "{code}",
    "yes",
    "ok",
    "approved {code}",
    "approve: {code}",
    "approve {code} 20000",
    "done {code}",
    "not_done {code}",
    "give_up {code}",
    "аpprove {code}",  # noqa: RUF001 - the first letter is Cyrillic
)


async def test_nothing_but_the_exact_word_and_code_decides(platform: ChatPlatform, client: AsyncOpenAI) -> None:
    dialogue, code = await charging(platform, client, what := new_id())
    run_id = dialogue.said["run_id"]
    for wrong in NO_DECISIONS:
        said = wrong.format(code=code, lower=lowered(code), short=code[:-1])
        answer = await dialogue.copy().say(said)

        assert code in answer, (said, answer)
        assert await waits(platform, run_id), said
        assert arrived(platform, what) == 0, said
    await dialogue.say(f"approve {code}")

    assert done(platform, what) == 1


async def test_message_is_asked_for_again_in_the_same_conversation_until_it_is_answered(
    platform: ChatPlatform, client: AsyncOpenAI
) -> None:
    dialogue, code = await charging(platform, client, what := new_id())
    first = dialogue.messages[-1]["content"]

    second = await dialogue.say("What is this?")
    third = await dialogue.say("Well, yes")
    await dialogue.say(f"approve {code}")

    assert first == second == third
    assert (done(platform, what), dialogue.said["status"]) == (1, "succeeded")


async def test_code_beside_another_message_in_history_or_in_system_texts_decides_nothing(
    platform: ChatPlatform, client: AsyncOpenAI
) -> None:
    dialogue, code = await charging(platform, client, what := new_id())
    run_id, said = dialogue.said["run_id"], f"approve {code}"
    history = [*dialogue.messages, {"role": "user", "content": said}, {"role": "assistant", "content": "Charged."}]

    await dialogue.copy().say("Wait.", system=said)
    await dialogue.copy().say("Wait.", said)
    await dialogue.copy().say(said, "Wait.")
    await dialogue.copy().say([{"type": "text", "text": "approve "}, {"type": "text", "text": code}, *_text("!")])
    await dialogue.copy().say([*_text(said), *_text("")])
    await dialogue.copy().say(" ", said)
    await Talk(client, history).say("Was it charged?")
    await Talk(client, [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": said}]).say("Do it.")
    seen = str(platform.model.bodies)
    await Talk(client).say("Do it.", system=said)
    await client.responses.create(model="starling", input="Do it.", instructions=said)

    assert (await waits(platform, run_id), arrived(platform, what)) == (True, 0)
    assert code not in seen


def _text(text: str) -> list[Any]:
    return [{"type": "text", "text": text}]


async def test_code_of_one_conversation_decides_nothing_in_another(platform: ChatPlatform, client: AsyncOpenAI) -> None:
    one, other = new_id(), new_id()
    to_charge(platform, one, other)
    first, second = Talk(client), Talk(client)
    codes = [code_in(await first.say("Charge one!")), code_in(await second.say("Charge another!"))]

    await first.copy().say(f"approve {codes[1]}")
    await second.copy().say(f"approve {codes[0]}")
    await Talk(client).say(f"approve {codes[0]}")
    await Talk(client).say(f"approve {codes[1]}", extra_headers={"X-Thread-Id": new_id()})
    before = [arrived(platform, what) for what in (one, other)]
    await second.say(f"approve {codes[1]}")

    assert codes[0] != codes[1]
    assert before == [0, 0]
    assert [done(platform, what) for what in (one, other)] == [0, 1]


async def test_only_a_key_that_may_make_the_call_decides(platform: ChatPlatform, client: AsyncOpenAI) -> None:
    dialogue, code = await charging(platform, client, what := new_id())
    run_id, thread, said = dialogue.said["run_id"], dialogue.said["thread_id"], f"approve {code}"
    named: dict[str, Any] = {"extra_headers": {"X-Thread-Id": thread}}
    strangers = (
        await platform.key(grant=Grant(tools=frozenset({"effects.put"}))),
        await platform.key(grant=Grant(frozenset({"nothing"}))),
        await platform.key(tenant="strangers"),
    )
    for key in strangers:
        async with platform_client(platform, key) as stranger:
            await dialogue.copy(stranger).say(said)
            if key != strangers[0]:  # its message would wait for the run
                continue
            with pytest.raises(openai.PermissionDeniedError, match=r"effects\.charge"):
                await dialogue.copy(stranger).say(said, **named)
    async with platform_client(platform, strangers[2]) as stranger:
        await dialogue.copy(stranger).say(said, **named)
    before = (await waits(platform, run_id), arrived(platform, what))
    async with platform_client(platform, await platform.key(grant=Grant(tools=frozenset({"effects.charge"})))) as other:
        await dialogue.copy(other).say(said, **named)

    assert before == (True, 0)
    assert done(platform, what) == 1


@pytest.mark.parametrize("scope", [Scope.TEAMS, Scope.ADMIN, Scope.SERVICE])
async def test_key_without_the_scope_run_decides_nothing(
    platform: ChatPlatform, client: AsyncOpenAI, scope: Scope
) -> None:
    dialogue, code = await charging(platform, client, what := new_id())
    shown = {"Authorization": f"Bearer {await platform.key(scope)}", "X-Thread-Id": dialogue.said["thread_id"]}
    body = {"model": "starling", "messages": [{"role": "user", "content": f"approve {code}"}]}

    await platform.post(CHAT, 403, json=body, headers=shown)

    assert (await waits(platform, dialogue.said["run_id"]), arrived(platform, what)) == (True, 0)


async def test_nobody_decides_without_a_key(database_url: str, tmp_path: Path) -> None:
    async with (
        chat_platform(database_url, tmp_path) as platform,
        platform_client(platform) as client,
        aiohttp.ClientSession(platform.url) as nobody,
    ):
        dialogue, code = await charging(platform, client, what := new_id())
        run_id, said = dialogue.said["run_id"].replace("-", ""), f"approve {code}"
        there = {"X-Thread-Id": dialogue.said["thread_id"]}
        refused: list[str] = []
        for path, sent, headers in (
            (CHAT, {"messages": [{"role": "user", "content": said}]}, there),
            (CHAT, {"messages": [{"role": "user", "content": said}]}, {**there, "Authorization": ""}),
            (RESPONSES, {"input": said, "previous_response_id": f"resp_{run_id}"}, {}),
        ):
            async with nobody.post(path, json={"model": "starling", **sent}, headers=headers) as response:
                refused.append((await response.json())["error"]["type"])

        assert refused == ["permission_error", "authentication_error", "permission_error"]
        assert (await waits(platform, dialogue.said["run_id"]), arrived(platform, what)) == (True, 0)
        await dialogue.say(said)
        assert done(platform, what) == 1


@pytest.mark.parametrize("model", ["starling", AGENT])
async def test_approval_is_given_through_previous_response_id(
    platform: ChatPlatform, client: AsyncOpenAI, model: str
) -> None:
    to_charge(platform, what := new_id())
    asked = await client.responses.create(model=model, input="Charge it!")
    code = code_in(asked.output_text)

    wrong = await client.responses.create(model=model, input=f"approve {code}!", previous_response_id=asked.id)
    outside = await client.responses.create(model=model, input=f"approve {code}", user="whoever")
    before = arrived(platform, what)
    right = await client.responses.create(model=model, input=f"approve {code}", previous_response_id=wrong.id)

    assert (code in wrong.output_text, outside.id != asked.id, before) == (True, True, 0)
    assert (right.id, right.status, done(platform, what)) == (asked.id, "completed", 1)


async def test_approval_that_is_sent_twice_at_once_makes_one_call(platform: ChatPlatform, client: AsyncOpenAI) -> None:
    dialogue, code = await charging(platform, client, what := new_id())

    answers = await asyncio.gather(*(dialogue.copy().say(f"approve {code}") for _ in range(4)))

    assert all(answers)
    assert (done(platform, what), arrived(platform, what)) == (1, 1)


# Budgets


async def test_budget_is_raised_by_the_exact_word_code_and_number(database_url: str, tmp_path: Path) -> None:
    async with chat_platform(database_url, tmp_path, run_tokens=30) as platform:
        platform.script.run(
            decision(task("t1", "generalist")), decision(reply="Later."), t1=Answer("Written."), qa=Answer("Fine [1].")
        )
        async with (
            platform_client(platform, await platform.key()) as client,
            platform_client(platform, await platform.key(grant=Grant(frozenset({"nothing"})))) as narrow,
        ):
            dialogue = Talk(client)
            code = code_in(await dialogue.say("Write!"))
            run_id = dialogue.said["run_id"]
            for wrong in (
                "",
                " many",
                " -5",
                " 0",
                " 2e4",
                " 20k",
                " 20,000",
                "  20000",
                " 20000\n",
                " 20000 ",
                " 20000\u0660",
                " 20000 now",
            ):
                answer = await dialogue.copy().say(f"approve {code}{wrong}")
                assert code in answer, wrong
                assert await waits(platform, run_id), wrong
            await dialogue.copy(narrow).say(f"approve {code} 20000", user="narrow")
            still = await waits(platform, run_id)
            answer = await dialogue.say(f"approve {code} 20000")

    assert (still, answer, dialogue.said["run_id"], dialogue.said["status"]) == (True, "Written.", run_id, "succeeded")


# Calls in doubt


MAY_BE_GOING_ON = text("""
UPDATE interrupts SET response_schema = response_schema || '{"notDoneFrom": "2100-01-01T00:00:00+00:00"}'
WHERE run_id = :run""")


async def doubting(platform: ChatPlatform, client: AsyncOpenAI, what: str, gate: str) -> tuple[Talk, str]:
    """Return a conversation whose run doesn't know whether its call was made, and its code."""
    invoice = {"what": what, "stall": "after", "gate": gate, "answer": "number"}
    platform.script.run(
        decision(task("t1", AGENT)),
        decision(),
        t1=[calls(("invoice", invoice)), Answer("It is invoiced.")],
        qa=Answer("Done [1]."),
    )
    dialogue = Talk(client)
    return dialogue, code_in(await dialogue.say("Invoice it!"))


@pytest.mark.parametrize(
    ("word", "made", "status"), [("done", 1, "succeeded"), ("not_done", 2, "succeeded"), ("give_up", 1, "failed")]
)
async def test_call_in_doubt_counts_as_made_is_made_again_or_given_up(
    platform: ChatPlatform, client: AsyncOpenAI, word: str, made: int, status: str
) -> None:
    what, gate = new_id(), new_id()
    dialogue, code = await doubting(platform, client, what, gate)
    run_id, text = dialogue.said["run_id"], dialogue.messages[-1]["content"]
    before = arrived(platform, what)
    platform.effects.open(gate)

    answer = await dialogue.say(f"{word} {code}")

    assert all(
        part in text for part in (f"done {code}", f"not_done {code}", f"give_up {code}", "effects.invoice", what)
    )
    assert (before, arrived(platform, what), done(platform, what)) == (1, made, made)
    assert len({line["key"] for line in platform.effects.lines("arrived") if line["what"] == what}) == 1
    assert (dialogue.said["run_id"], dialogue.said["status"]) == (run_id, status)
    assert ("may have been done" in answer) == (word == "give_up")


async def test_call_that_may_be_going_on_is_not_decided_as_not_done_yet(
    platform: ChatPlatform, client: AsyncOpenAI
) -> None:
    dialogue, code = await doubting(platform, client, new_id(), gate := new_id())
    run_id = dialogue.said["run_id"]
    async with platform.services.storage.engine.begin() as connection:  # as of a call of a lost lease
        await connection.execute(MAY_BE_GOING_ON, {"run": run_id})

    with pytest.raises(openai.ConflictError, match="`not_done` is accepted from 2100-01-01"):
        await dialogue.say(f"not_done {code}")

    dialogue.messages.pop()  # what was refused
    platform.effects.open(gate)
    await dialogue.say(f"done {code}")
    assert (dialogue.said["run_id"], dialogue.said["status"]) == (run_id, "succeeded")


async def test_call_in_doubt_is_decided_by_nothing_else(platform: ChatPlatform, client: AsyncOpenAI) -> None:
    what, gate = new_id(), new_id()
    dialogue, code = await doubting(platform, client, what, gate)
    run_id = dialogue.said["run_id"]
    for wrong in (
        "approve {code}", "reject {code}", "Done {code}", "done {lower}", "done  {code}", "done {code}.",
        "not done {code}", "not-done {code}", "NOT_DONE {code}", "give up {code}", "giveup {code}", "done", "not_done",
        "It was done {code}", "done {code} order 4711", "done not_done {code}", "done {short}", "done {code}\n",
        " not_done {code}", "give_up {code} ",
    ):  # fmt: skip
        said = wrong.format(code=code, lower=lowered(code), short=code[:-1])
        assert code in await dialogue.copy().say(said), said
        assert await waits(platform, run_id), said
    keys = await platform.key(grant=Grant(tools=frozenset({"effects.put"}))), await platform.key(tenant="strangers")
    for key in keys:
        async with platform_client(platform, key) as stranger:
            for word in ("done", "not_done", "give_up"):
                await dialogue.copy(stranger).say(f"{word} {code}")
                await dialogue.copy(client).say("Wait.", system=f"{word} {code}")
    still, made = await waits(platform, run_id), arrived(platform, what)
    platform.effects.open(gate)
    await dialogue.say(f"give_up {code}")

    assert (still, made, arrived(platform, what)) == (True, 1, 1)
