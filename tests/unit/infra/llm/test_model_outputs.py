"""The corpus of model outputs, read as an endpoint sends them: whole, and streamed in pieces of every size."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

import pytest

from brain.planning.decision import Decision, Verdict
from starling.core.errors import LLMInvalidResponse
from starling.core.llm import (
    Message,
    ModelReply,
    ModelRequest,
    ModelRole,
    ResponseSchema,
    ReturnedReasoning,
    TextDelta,
    ToolSpec,
)
from starling.core.model_output.json_document import read_document
from starling.core.model_output.names import aliases
from starling.infra.llm.chat_completions import StreamedAnswer, read_reply
from starling.infra.llm.chat_model import ReplyStream, checked_reply
from starling.infra.llm.output_reader import OutputReader

FOLDER = Path(__file__).parents[3] / "data/model_outputs"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in (FOLDER / "outputs.jsonl").read_text("utf-8").splitlines()]
TOOLS = {tool["name"]: ToolSpec(**tool) for tool in json.loads((FOLDER / "tools.json").read_text("utf-8"))}
DOCUMENTS = {"verdict": Verdict, "supervisor_decision": Decision}

type Row = Mapping[str, Any]


def rows(*kinds: str) -> Callable[..., Any]:
    chosen = [row for row in ROWS if row["kind"] in kinds]
    return pytest.mark.parametrize("row", chosen, ids=[row["id"] for row in chosen])


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model whose endpoint sent this message, or streamed its text in these pieces."""

    message: Mapping[str, Any]
    pieces: Sequence[str] = ()
    name: str = "local:small"
    finish_reason: str = "stop"

    async def respond(self, request: ModelRequest) -> ModelReply:
        body = {"choices": [{"message": dict(self.message), "finish_reason": self.finish_reason}]}
        return checked_reply(read_reply(self.name, body), request)

    async def stream_respond(self, request: ModelRequest) -> ReplyStream:
        answer = StreamedAnswer(self.name)
        for piece in self.pieces:
            chunk = {"choices": [{"delta": {"content": piece}, "finish_reason": None}]}
            for text in answer.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n"):
                yield TextDelta(text)
        last = {"choices": [{"delta": {"content": ""}, "finish_reason": self.finish_reason}]}
        answer.feed(b"data: " + json.dumps(last).encode() + b"\n\ndata: [DONE]\n\n")
        yield checked_reply(answer.reply(), request)


def request_of(row: Row) -> ModelRequest:
    context = row.get("context", {})
    schema, names = context.get("schema"), context.get("names", {})
    read = [Message("tool", text, tool_call_id="call_0") for text in context.get("read", ())]
    return ModelRequest(
        ModelRole.ROUTER,
        (Message("user", "Do it."), *read),
        tools=tuple(TOOLS[name] for name in context.get("tools", ())),
        response=ResponseSchema(schema, {}) if schema else None,
        tool_names=aliases({tool: [written] for written, tool in names.items()}),
    )


def reader(row: Row, pieces: Sequence[str] = ()) -> OutputReader:
    output: Any = row["output"]
    message = cast("dict[str, Any]", output) if isinstance(output, dict) else {"content": "".join(output)}
    context = row.get("context", {})
    name, finish_reason = context.get("model", "local:small"), context.get("finish_reason", "stop")
    return OutputReader(Endpoint(message, pieces, name, finish_reason=finish_reason))


@dataclass(slots=True)
class Shown:
    """What the reader of a stream was shown: the text in the end, and all pieces, also those that were taken back."""

    text: str = ""
    pieces: str = ""
    reply: ModelReply = field(default_factory=lambda: ModelReply(""))

    @classmethod
    async def of(cls, items: AsyncIterator[TextDelta | ModelReply]) -> Self:
        shown = cls()
        async for item in items:
            if isinstance(item, ModelReply):
                shown.reply = item
            else:
                shown.text = item.text if item.restart else shown.text + item.text
                shown.pieces += item.text
        return shown


def pieces_of(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def test_corpus_has_markers_that_are_content() -> None:
    assert len(ROWS) >= 60
    assert sum(row.get("marker_is_content", False) for row in ROWS) >= 15


@rows("text", "message", "stream")
async def test_text_is_read_without_its_reasoning(row: Row) -> None:
    reply = await reader(row).respond(request_of(row))

    expected = {"reasoning": reply.reasoning} | row["expected"]
    assert (reply.content, reply.reasoning) == (expected["text"], expected["reasoning"])
    assert reply.reasoning_field == row["expected"].get("field", "")
    assert [call.arguments for call in reply.tool_calls] == [
        row["expected"][name] for name in ("arguments",) if name in row["expected"]
    ]


@rows("stream")
async def test_stream_shows_no_reasoning(row: Row) -> None:
    shown = await Shown.of(reader(row, row["output"]).stream_respond(request_of(row)))

    assert (shown.text.strip(), shown.reply.reasoning) == (row["expected"]["text"], row["expected"]["reasoning"])
    if row["family"] != "unknown":  # a model that begins inside of reasoning and isn't known to
        assert shown.pieces == shown.text


@rows("text", "stream")
async def test_reading_does_not_depend_on_the_pieces(row: Row) -> None:
    text = row["output"] if isinstance(row["output"], str) else "".join(row["output"])

    for size in range(1, 12):
        shown = await Shown.of(reader(row, pieces_of(text, size)).stream_respond(request_of(row)))

        assert shown.text.strip() == shown.reply.content.strip() == row["expected"]["text"].strip(), size
        assert shown.reply.reasoning == row["expected"].get("reasoning", shown.reply.reasoning), size


LONE_END = Endpoint({}, ["It is", " Lima.\n</th", "ink>\n\nLima."])
PLAIN = Endpoint({}, ["It is ", "Lima."])
CUT = Endpoint({}, ["It is ", "Li"], finish_reason="length")


@dataclass(slots=True)
class AnswersInTurn:
    """A model that streams one answer after another."""

    answers: list[Endpoint]
    name: str = "local:small"

    async def respond(self, request: ModelRequest) -> ModelReply:
        raise NotImplementedError

    def stream_respond(self, request: ModelRequest) -> ReplyStream:
        return self.answers.pop(0).stream_respond(request)


@pytest.mark.parametrize(
    ("answers", "pieces", "text"),
    [
        ([LONE_END, LONE_END], "Lima.", "Lima."),
        ([LONE_END, PLAIN, PLAIN], "It is |Lima.", "It is Lima."),
        ([LONE_END, CUT], "", ""),
        ([LONE_END, CUT, LONE_END], "Lima.", "Lima."),
        ([LONE_END, PLAIN, CUT], "It is |Li", "It is Li"),
        ([PLAIN, CUT], "It is |Li", "It is Li"),
    ],
    ids=["held", "streamed again", "cut", "held after a cut answer", "cut after a plain answer", "cut, not known"],
)
async def test_latest_complete_answer_says_whether_a_model_begins_inside_of_reasoning(
    answers: list[Endpoint], pieces: str, text: str
) -> None:
    model = OutputReader(AnswersInTurn([*answers]))
    request = ModelRequest(ModelRole.ROUTER, (Message("user", "Which city?"),))
    for _ in answers[1:]:
        await Shown.of(model.stream_respond(request))

    shown = [item async for item in model.stream_respond(request)]

    assert "|".join(item.text for item in shown if isinstance(item, TextDelta)) == pieces
    assert [item.content for item in shown if isinstance(item, ModelReply)] == [text]


@pytest.mark.parametrize(("author", "returned"), [("local:small", True), ("local:large", False)])
async def test_reasoning_is_returned_to_its_author_only(author: str, returned: bool) -> None:
    asked: list[ModelRequest] = []

    class Listening(Endpoint):
        async def respond(self, request: ModelRequest) -> ModelReply:
            asked.append(request)
            return await Endpoint.respond(self, request)

    thought = Message("assistant", "", reasoning=ReturnedReasoning("I look first.", "reasoning_content", author))
    await OutputReader(Listening({"content": "Fine."})).respond(ModelRequest(ModelRole.ROUTER, (thought,)))

    assert (asked[0].messages[0].reasoning is not None) == returned


@rows("document")
async def test_document_is_read(row: Row) -> None:
    try:
        reply = await reader(row).respond(request_of(row))
    except LLMInvalidResponse:  # there is no text outside of the reasoning
        assert row["expected"].get("refused")
        return

    document, errors = read_document(reply.content, DOCUMENTS[row["context"]["schema"]])

    if row["expected"].get("refused"):
        assert (document, bool(errors)) == (None, True)
    else:
        assert document is not None, errors
        assert document.model_dump() | row["expected"]["document"] == document.model_dump()


@rows("call")
async def test_tool_call_in_text_is_read(row: Row) -> None:
    reply = await reader(row).respond(request_of(row))

    assert [{"name": call.name, "arguments": call.arguments} for call in reply.tool_calls] == row["expected"]["calls"]
    assert reply.content == row["expected"].get("text", reply.content)


@rows("call")
@pytest.mark.parametrize("size", [1, 3, 16])
async def test_streamed_text_shows_no_tool_call(row: Row, size: int) -> None:
    shown = await Shown.of(reader(row, pieces_of(row["output"], size)).stream_respond(request_of(row)))

    assert len(shown.reply.tool_calls) == len(row["expected"]["calls"])
    assert shown.text.strip() == row["expected"].get("text", shown.text.strip())
