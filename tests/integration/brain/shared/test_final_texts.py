"""Final texts: what is cut off, empty, repeated or wrapped never reaches the user; all others stay as they are."""

import json
import sys
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from tests.conftest import DatabaseServer
from tests.integration.brain.shared.test_final_answer import typed
from tests.support.gateway_harness import SERVERS
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import (
    BENCH,
    Platform,
    RunStream,
    ScriptedModel,
    calls,
    decision,
    open_platform,
    task,
    verdict,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

FINE, USUAL = "The disk is fine [1].", "How is the disk?"
OF_MANY = f"How are the disks {', '.join(f'sd{n} ({n} %) and sd{n:02}' for n in range(60))}?"  # answers may name these
BAD = {
    "cut off": Answer("The disk is fine [1], and the", finish_reason="length"),
    "empty": Answer(" \n "),
    "empty wrapper": Answer('{"answer": ""}'),
    "a sentence again and again": Answer("The disk is fine [1]. " * 40),
    "lines in turn": Answer("The disk [1]:\nIt was looked at.\n- It is fine.\n\n" * 25),
    "a word again and again": Answer("The disk is " + "fine " * 300),
    "repetition after a good beginning": Answer(f"{FINE}\n\nIn short, " + "it is fine, as the disk is fine, and " * 30),
    "repetition without spaces": Answer("ディスクは正常です。" * 40),
}
SMALL_TALK = ["What is 17 times 3?", "Thank you, that helped.", "Who are you?"]
DRAGONS = 'Search the books for the words "green dragons".'
CODE = "led.on()\nsleep(1)\nled.off()\nsleep(1)\n" * 12
GOOD = {
    "a repeated table header": "\n\n".join(f"| disk | used |\n| --- | --- |\n| sd{n} | {n} % [1] |" for n in range(9)),
    "items that begin alike": "\n".join(f"- The disk sd{n} is fine: {n} % are used [1]." for n in range(40)),
    "lines that end alike": "\n".join(f"sd{n:02}: it is fine, nothing to do" for n in range(40)) + " [1]",
    "code with repeated lines": f"Run this [1]:\n\n```python\n{CODE}```",
    "rows of equal numbers": "The bad sectors [1]:\n\n```\n" + "0 0 0 0 0 0 0 0\n" * 8 + "```",
    "a long rule": f"The disk [1]\n{'=' * 120}\nfine",
    "a citation in one of its sentences": "The disk is fine [1]. Nothing else was looked at.",
    "one word": "Yes [1].",
}
DOCUMENTS = {  # by the request for it
    "Answer as JSON with the keys disk and used.": '{"disk": "fine", "used": 2}',
    "Answer as JSON with the key state.": '{"state": "fine"}',
    "As JSON in a fence, please.": '```json\n{"state": "fine"}\n```',
    "Bitte als JSON.": '{"zustand": "in Ordnung"}',
}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {"fail": ("fail", {"why": "no"}), "silence": ("silence", {})}
WRAPPERS = ['{"answer": TEXT}', '```json\n{\n  "respuesta": TEXT\n}\n```', '{"text": TEXT, "citations": [1]}']


async def ask(
    platform: Platform, script: ScriptedModel, *answers: Answer, of: str = USUAL, things: tuple[str, ...] = ("disk",)
) -> RunStream:
    """Make a run that looks at things or makes `CALLS`, one a task, and gives these final answers."""
    script.supervisor(decision(*(task(f"t{n}", BENCH) for n, _ in enumerate(things, 1))), decision())
    for n, thing in enumerate(things, 1):
        script.agent(f"t{n}", calls(CALLS.get(thing, ("look", {"thing": thing}))))
    script.reviewer(verdict("APPROVED"))
    script.qa(*answers)
    return await platform.ask(of)


def times_asked(platform: Platform, prompt: str = "You write the final answer") -> int:
    return len(platform.requests_containing(prompt))


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("bad", BAD)
async def test_bad_final_text_is_asked_for_once_more_and_then_replaced_by_the_results_with_a_warning(
    platform: Platform, script: ScriptedModel, bad: str, *, always: bool
) -> None:
    stream = await ask(platform, script, BAD[bad], *([] if always else [Answer(FINE)]), things=("disk", "fan"))

    assert (stream.status, times_asked(platform), typed(stream)) == ("succeeded", 2, stream.reply)
    if always:
        assert all(result in stream.reply for result in ("the disk is fine [1]", "the fan is fine [2]"))
        assert (len(stream.reply) < 200, stream.codes != []) == (True, True)
    else:
        assert stream.reply == FINE


@pytest.mark.parametrize(
    ("wanted", "good"), [*((OF_MANY, text) for text in GOOD.values()), *DOCUMENTS.items()], ids=[*GOOD, *DOCUMENTS]
)
async def test_good_text_stays_as_it_is(platform: Platform, script: ScriptedModel, wanted: str, good: str) -> None:
    stream = await ask(platform, script, Answer(good), of=wanted)

    assert (stream.reply, stream.codes, times_asked(platform)) == (good, [], 1)


@pytest.mark.parametrize("wrapper", WRAPPERS)
async def test_wrapper_is_removed_without_asking_again(platform: Platform, script: ScriptedModel, wrapper: str) -> None:
    text = f'{FINE}\n\n- It is called "sda".'

    stream = await ask(platform, script, Answer(wrapper.replace("TEXT", json.dumps(text))), of="How is the disk sda?")

    assert (stream.reply, typed(stream), times_asked(platform)) == (text, text, 1)


@pytest.mark.parametrize("written", ["Once upon a time.", '{"name": "starling"}'])
async def test_text_of_the_only_task_is_a_final_text(platform: Platform, script: ScriptedModel, written: str) -> None:
    script.run(decision(task("t1", "generalist")), t1=[Answer(written[:9], finish_reason="length"), Answer(written)])

    assert (await platform.ask("Write a story and a package.json.")).reply == written


@pytest.mark.parametrize("things", [("disk",), ("disk", "fail"), ("disk", "fan")])
async def test_missing_citation_is_added_where_a_result_is_the_only_source(
    platform: Platform, script: ScriptedModel, things: tuple[str, ...]
) -> None:
    stream = await ask(platform, script, Answer("It is fine."), things=things)

    answer, _, failed = stream.reply.partition("Not answered")
    assert answer.strip() in (("It is fine.",) if "fan" in things else ("It is fine [1].", "It is fine. [1]"))
    assert ("do t2" in failed, typed(stream)) == ("fail" in things, stream.reply)


async def test_read_that_finds_nothing_is_a_result(platform: Platform, script: ScriptedModel) -> None:
    stream = await ask(platform, script, Answer("Nothing was found [1]."), things=("silence",))

    assert (stream.status, stream.reply, len(stream.of("tool_start"))) == ("succeeded", "Nothing was found [1].", 1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def library(
    database_server: DatabaseServer,
    database_copy: str,
    module_script: ScriptedModel,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[Platform]:
    """A platform with a server that searches books and one that looks at the machine, for the tests of this module."""
    run = {"shelf": [str(SERVERS / "shelf.py")], "health": ["-m", "mcp_gateway.servers.system_health"]}
    servers = {name: {"command": sys.executable, "args": args} for name, args in run.items()}
    with database_server.database(database_copy) as url:
        async with (
            ModelServer(module_script) as model,
            open_platform(url, model, servers, tmp_path_factory.mktemp("library")) as platform,
        ):
            yield platform


@pytest.mark.parametrize(
    ("wanted", "times", "looks"), [(DRAGONS, 2, False), (DRAGONS, 2, True), *((one, 1, False) for one in SMALL_TALK)]
)
async def test_direct_reply_is_sent_back_once_where_the_rank_of_an_agent_is_certain(
    library: Platform, script: ScriptedModel, wanted: str, times: int, *, looks: bool
) -> None:
    direct = decision(reply="There are 51.")
    script.supervisor(direct, decision(task("t1", "mcp_agent_shelf")) if looks else direct)
    script.agent("t1", calls(("search_books", {"words": "green dragons"})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("There is none [1]."))
    library.model.forget()

    stream = await library.ask(wanted, thread=f"{wanted} {looks}")

    assert (stream.status, times_asked(library, "You supervise agents")) == ("succeeded", times)
    assert stream.reply.startswith("There is none [1]." if looks else "There are 51.")
    assert ("not looked up" in stream.reply.casefold()) == (times == 2 and not looks)
