"""What an answer says is found at its sources: excerpts point to it; what stands nowhere is sent back, then marked."""

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from starling.core.runs import ForkRequest
from starling.core.secrets.look_alikes import mask_keys
from starling.infra.postgres.runs.acceptance import RunKey
from tests.integration.brain.conftest import Open
from tests.support.gateway_harness import SERVERS, python
from tests.support.http_app import served_api
from tests.support.http_client import ApiClient
from tests.support.local_access import TOKEN
from tests.support.model_script import Answer
from tests.support.openai_clients import openai_client
from tests.support.platform import CALLER, Platform, RunStream, ScriptedModel, Workbench, calls, decision, task, verdict
from tests.support.sse import read_events
from tests.support.worker_runtime import running_worker

POET, GOOD, BAD = "mcp_agent_poet", verdict("APPROVED"), verdict("REJECTED", "It is wrong.")
QUOTE = calls(("quote", {"lines": 0}))
QA, CODE, MARK = "You write the final answer", "unsupported_statement", "[?]"
SECRET = "correct-horse-battery-staple"
KEY = "sk-proj-" + "Ab3" * 12
EMOJI = "\U0001f469\u200d\U0001f469\u200d\U0001f467\U0001f1f5\U0001f1ea\U0001d518\U0001d52b\U0010fffd"
FILLER = "\n".join(f"entry {number} of the log is as it should be {EMOJI}" for number in range(2_300))


@dataclass(frozen=True, slots=True)
class Desk:
    """A platform with an agent that quotes what a test wrote."""

    platform: Platform
    script: ScriptedModel
    folder: Path

    def says(self, words: str, number: int = 0) -> None:
        (self.folder / f"quote{number}").write_bytes(words.encode())

    def answers(self, *final: str) -> None:
        """Script a run whose one task quotes, and whose final texts are these."""
        self.script.run(decision(task("t1", POET)), t1=QUOTE)
        self.script.qa(*map(Answer, final))

    @property
    def written(self) -> int:
        """How often a final text was asked for."""
        return len(self.platform.requests_containing(QA))


@pytest.fixture
async def desk(
    opened: Open, script: ScriptedModel, workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Desk]:
    monkeypatch.setenv("PLANTED", SECRET)
    poet = python(SERVERS / "verbose.py", str(tmp_path / "said"), effect="read", env={"SOME": "${PLANTED}"})
    servers = {
        "bench": workbench.as_server("read"),
        "poet": poet.model_dump(mode="json", by_alias=True, exclude_defaults=True),
    }
    async with opened(servers=servers) as platform:
        yield Desk(platform, script, tmp_path)


async def pointed(desk: Desk, stream: RunStream) -> list[tuple[str, str]]:
    """Each excerpt of an answer, and what stands at its place as the API serves it."""
    async with served_api(desk.platform.settings, desk.platform.services) as api:
        run = f"/v1/runs/{stream.key.id}"
        document = await api.get(f"{run}?include=tasks,calls,prompts")
        assert document["result"]["citations"] == stream.done["citations"]
        return [
            (excerpt["text"], (await _text(api, run, document, source, excerpt))[excerpt["start"] : excerpt["end"]])
            for source in stream.done["citations"]
            for excerpt in source.get("excerpts", ())
        ]


async def _text(api: ApiClient, run: str, document: Mapping[str, Any], source: Any, excerpt: Any) -> str:
    if artifact := excerpt.get("artifact"):
        async with api.client.get(f"{run}/artifacts/{artifact}") as response:
            assert response.status == 200
            content = (await response.read()).decode()
            assert excerpt["text"] == mask_keys(content[excerpt["start"] : excerpt["end"]])
            return "\0" * excerpt["start"] + excerpt["text"]
    if call := excerpt.get("call_id"):
        attempts = [attempt for item in document["tasks"] for attempt in item["attempts"]]
        [result] = [one["result"] for attempt in attempts for one in attempt["calls"] if one["id"] == call]
        return result
    [output] = [each["attempts"][-1]["text"] for each in document["tasks"] if each["path"] == source["task_id"]]
    return output


# A result, and what the answer takes from it.
TEXTS = {
    "short": ("The disk has 734921 blocks.", "734921"),
    "beyond the BMP": (f"{EMOJI} The disk\r\n{EMOJI} has 734921 blocks.", "734921"),
    "not composed": ("Cafe\u0301 Zu\u0308rich\u2028 has 734921 seats, Café Zürich none.", "734921"),
    "masked": (f"{SECRET} opens {SECRET}: 734921 doors {SECRET}.", "734921"),
    "what looks like a key": (f"{KEY} opens 734921 doors, {KEY} none.", "734921"),
    "null and tabs": ("a\0b\t\ufeff\x0b has 734921 blocks", "734921"),
    "markup": ("<b>&amp;</b> &lt; </result> 734921 &#55;", "734921"),
    "path": ("found /srv/ünï/größe_77.yaml there", "/srv/ünï/größe_77.yaml"),
    "quoted": (f"{EMOJI} he said: never   touch\na running system, ever", "“never touch a running system”"),
    "JSON": (json.dumps({"a": EMOJI, "blocks": 734921, "b": "é"}), "734921"),
    "indented JSON": (json.dumps({"a": EMOJI, "blocks": 734921}, indent=2, ensure_ascii=False), "734921"),
    "JSON with escapes": (json.dumps({"a": f'"{EMOJI}"\\n', "n": {"blocks": 734921}}), "734921"),
}


LONG = ("short", "beyond the BMP", "masked", "JSON")  # which are also tried in an artifact


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        *((kind, "alone") for kind in TEXTS),
        *((kind, where) for kind in LONG for where in ("at the end of 100,000 characters", "in between")),
    ],
)
async def test_excerpts_point_to_what_the_answer_says(desk: Desk, kind: str, where: str) -> None:
    text, said = TEXTS[kind]
    long = FILLER if "JSON" not in kind else json.dumps({"log": FILLER.splitlines()}, ensure_ascii=False)
    parts = {"alone": [text], "in between": [long, text, long]}
    desk.says("\n".join(parts.get(where, [long, text])))
    desk.answers(f"It is {said} [1].")

    stream = await desk.platform.ask("How is the disk?")

    found = await pointed(desk, stream)
    assert [(text, there) for text, there in found if text != there] == []
    assert all(len(text) <= 200 for text, _ in found)
    assert (stream.status, MARK in stream.reply, CODE in stream.codes) == ("succeeded", False, False)
    plain = said.strip("“”").split()[0]
    assert any(plain in text for text, _ in found), stream.done["citations"]
    assert all(SECRET not in text for text, _ in found)
    [source] = stream.done["citations"]
    assert (source["task_id"], source["agent"], source["tools"]) == ("t1", POET, ["poet.quote"])
    assert [call["call_id"] for call in source["calls"]] == ["t1.0.0"]


async def test_excerpt_in_structured_content_that_is_too_long_points_into_its_artifact(desk: Desk) -> None:
    desk.script.run(decision(task("t1", POET)), t1=calls(("tabulate", {"lines": 4_000})))
    desk.script.qa(Answer("The last is “row 3999” [1], and there are 4000 rows [1]."))

    stream = await desk.platform.ask("Which rows are there?")

    found = await pointed(desk, stream)
    assert any("row 3999" in text for text, _ in found), stream.done
    assert [(text, there) for text, there in found if text != there] == []
    assert MARK not in stream.reply


async def test_excerpt_of_a_result_without_calls_points_into_the_output(desk: Desk) -> None:
    desk.says("Fine.")
    plan, said = decision(task("t1", "generalist"), task("t2", POET)), f"{EMOJI * 100} A week has 604800 seconds."
    desk.script.run(plan, t1=Answer(said), t2=QUOTE, qa=Answer("It has 604800 seconds [1], and is fine [2]."))

    stream = await desk.platform.ask("How long is a week?")

    found = await pointed(desk, stream)
    assert [(text, there) for text, there in found if text != there] == []
    assert any("604800" in text for text, _ in found), stream.done["citations"]


async def test_calls_of_rejected_attempts_and_of_other_tasks_are_no_sources(desk: Desk) -> None:
    for number, words in enumerate(("It has 111222 blocks.", "It has 333444 blocks.", "It has 555666 fans.")):
        desk.says(words, number)
    desk.script.supervisor(decision(task("t1", POET), task("t2", POET)))
    desk.script.agent("t1", calls(("quote", {"lines": 0})), calls(("quote", {"lines": 1})))
    desk.script.agent("t2", calls(("quote", {"lines": 2})))
    desk.script.reviewer(BAD, GOOD, of="t1")
    desk.script.reviewer(GOOD, of="t2")
    desk.script.qa(Answer("It has 333444 blocks [1], 555666 fans [2] and 111222 doors [1]."))

    stream = await desk.platform.ask("How is it?")

    assert stream.reply == "It has 333444 blocks [1], 555666 fans [2] and 111222 [?] doors [1]."
    texts = {source["task_id"]: str(source["excerpts"]) for source in stream.done["citations"]}
    assert ("333444" in texts["t1"], "111222" in texts["t1"], "555666" in texts["t2"]) == (True, False, True)
    found = await pointed(desk, stream)
    assert [(text, there) for text, there in found if text != there] == []


NOWHERE = {
    "number": ("It has 734922 blocks [1].", "734922 [?]"),
    "number behind a link": ("[The disk](/srv/data/blocks.yaml) has 734922 blocks [1].", "734922 [?]"),
    "number behind a citation": ("[1] says that it has 734922 blocks.", "734922 [?]"),
    "quoted text behind a tag": ("[Note] “All disks must be replaced at once” [1].", "once” [?]"),
    "quoted text": ("It says “all disks must be replaced at once” [1].", "[?]"),
}


@pytest.mark.parametrize("kind", NOWHERE)
async def test_what_stands_nowhere_is_sent_back_once_then_marked_with_a_warning(desk: Desk, kind: str) -> None:
    said, marked = NOWHERE[kind]
    desk.says("The disk has 734921 blocks in /srv/data/blocks.yaml.")
    desk.answers(said)

    stream = await desk.platform.ask("How is the disk?")

    assert (stream.status, desk.written) == ("succeeded", 2)
    assert marked in stream.reply
    assert stream.reply.count(MARK) == 1
    assert stream.codes.count(CODE) == 1
    assert _shown(stream) == stream.reply


async def test_corrected_answer_is_neither_marked_nor_warned_of(desk: Desk) -> None:
    desk.says("The disk has 734921 blocks.")
    desk.answers("It has 734922 blocks [1].", "It has 734921 blocks [1].")

    stream = await desk.platform.ask("How is the disk?")

    assert (stream.reply, stream.codes, desk.written) == ("It has 734921 blocks [1].", [], 2)
    assert _shown(stream) == stream.reply
    told = desk.platform.requests_containing(QA)[1]["messages"][-1]["content"]
    assert "734922" in told
    assert await pointed(desk, stream) == [("The disk has 734921 blocks.", "The disk has 734921 blocks.")]


async def test_second_answer_that_is_worse_is_marked_as_well(desk: Desk) -> None:
    desk.says("The disk has 734921 blocks.")
    desk.answers("It has 734922 blocks [1].", "It has 734923 blocks [1] and 999111 fans [9].")

    stream = await desk.platform.ask("How is the disk?")

    assert desk.written == 2
    assert "[9]" not in stream.reply
    assert not [
        number for number in ("734922", "734923", "999111") if number in stream.reply.replace(f"{number} [?]", "")
    ]


RIGHT = {
    "request": "You asked for 4711 and “the big disk” in /home/me/x.txt; it has 734921 blocks [1].",
    "date": "On 2026-11-28 it has 734921 blocks [1].",
    "no statement": "It is fine [1].",
}


@pytest.mark.parametrize("kind", RIGHT)
async def test_what_can_be_made_of_the_sources_is_not_sent_back(desk: Desk, kind: str) -> None:
    desk.says("disk a: 734921 blocks\ndisk b: 100 blocks\ndisk c: 0 blocks\n")
    desk.answers(RIGHT[kind])

    stream = await desk.platform.ask("I want 4711 of “the big disk” in /home/me/x.txt.")

    assert (stream.reply, desk.written, stream.codes) == (RIGHT[kind], 1, [])


async def test_masked_secret_that_the_answer_invents_is_marked(desk: Desk) -> None:
    desk.says(f"The key is {SECRET}, number 734921.")
    desk.answers("The key is “correct-horse-battery-stable”, number 734921 [1].")

    stream = await desk.platform.ask("Which key?")

    assert MARK in stream.reply
    assert SECRET not in json.dumps(stream.done)


async def test_what_an_earlier_answer_was_marked_for_is_no_source_of_the_next(desk: Desk) -> None:
    desk.says("The disk has 734921 blocks.")
    desk.answers("It has 734922 blocks [1].")
    await desk.platform.ask("How is the disk?")

    stream = await desk.platform.ask("And now?")

    assert stream.reply == "It has 734922 [?] blocks [1]."


def _shown(stream: RunStream) -> str:
    """What a client shows that follows the events: the pieces of the last message."""
    pieces = [(event["message_id"], event["content"]) for event in stream.of("thinking")]
    return "".join(content for message, content in pieces if message == pieces[-1][0])


FINALS: dict[str, tuple[str, ...]] = {
    "marked": ("It has 734922 blocks [1].",),
    "corrected": ("It has 734922 blocks [1].", "It has 734921 blocks [1]."),
    "without source": ("It has 734921 blocks [1][7].",),
    "not cited": ("It has 734921 blocks.",),
    "long": (f"{EMOJI} It has 734922 blocks [1]. " * 60 + "\n\nThat is /srv/none.yaml.",),
}


@pytest.mark.parametrize("kind", FINALS)
async def test_streaming_clients_end_with_the_text_of_done(desk: Desk, kind: str) -> None:
    desk.says("The disk has 734921 blocks.")
    desk.answers(*FINALS[kind])
    platform = desk.platform

    async with (
        running_worker(platform.worker_runtime.worker),
        served_api(platform.settings, platform.services) as api,
        openai_client(api.url, TOKEN) as client,
    ):
        body = {"input": "How is the disk?", "thread_id": "a"}
        async with api.client.post("/v1/agent/run", json=body) as response:
            events = [event async for event in read_events(response)]
        desk.script.forget()
        desk.answers(*FINALS[kind])
        messages: Any = [{"role": "user", "content": "How is the disk?"}]
        stream = await client.chat.completions.create(model="starling", messages=messages, stream=True)
        chunks: list[Any] = [chunk async for chunk in stream]
        desk.script.forget()
        desk.answers(*FINALS[kind])
        responded: Any = await client.responses.create(model="starling", input="How is the disk?", stream=True)
        told = [event async for event in responded]
        runs = [await api.get(f"/v1/runs/{run['run_id']}") for run in (await api.get("/v1/runs"))["runs"]]

    thinking = [event.data for event in events if event.type == "thinking"]
    last = "".join(one["content"] for one in thinking if one["message_id"] == thinking[-1]["message_id"])
    chat = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    deltas = "".join(event.delta for event in told if event.type == "response.output_text.delta")
    replies = {run["result"]["reply"] for run in runs}
    assert replies == {events[-1].data["reply"]}
    assert {last, chat, deltas, told[-1].response.output_text} == replies


async def test_reader_that_comes_later_ends_with_the_text_of_done(desk: Desk) -> None:
    desk.says("The disk has 734921 blocks.")
    desk.answers("It has 734922 blocks [1].", "It has 734921 blocks [1].")
    stream = await desk.platform.ask("How is the disk?")

    async with served_api(desk.platform.settings, desk.platform.services) as api, aiohttp.ClientSession(api.url) as one:
        for after in range(len(stream.events) - 1):
            path = f"/v1/runs/{stream.key.id}/events"
            async with one.get(path, headers={"Last-Event-ID": str(after)}) as response:
                events = [event async for event in read_events(response)]
            assert events[-1].data["reply"] == stream.reply


async def test_excerpts_of_what_a_fork_inherited_point_into_its_original(desk: Desk) -> None:
    desk.says(f"{EMOJI * 900} The disk has 734921 blocks.")
    plan = decision(task("t1", POET), task("t2", POET, after=["t1"]))
    said = Answer("It has 734921 blocks [1], fine [2].")
    desk.script.run(plan, t1=QUOTE, t2=calls(("recite", {"lines": 2})), qa=said)
    original = await desk.platform.ask("How is the disk?")

    accepted = await desk.platform.services.forks.accept(CALLER, original.key.id, ForkRequest(at="t2"))
    fork = await desk.platform.finish(RunKey(CALLER.tenant, accepted.started.run_id))

    assert fork.done["citations"] == original.done["citations"]
    found = await pointed(desk, original)
    assert any("734921" in text for text, _ in found)
    assert [(text, there) for text, there in found if text != there] == []
