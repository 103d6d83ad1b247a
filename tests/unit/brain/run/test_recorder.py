"""The buffer of streamed text: few events, none of them large, and no character is lost or split."""

import asyncio

import pytest

from brain.run.recorder import RunRecorder, StreamBuffer
from starling.core.events.stream import AnyEvent
from tests.support.in_memory_run import Execution, MemorySink, make_execution, make_run

GROUP_BYTES = 512


def pieces(execution: Execution) -> list[str]:
    return [part["content"] for part in execution.events("thinking")]


async def test_thousands_of_tokens_make_few_events() -> None:
    execution = make_execution()
    tokens = [f"wört{number} " for number in range(2_000)]

    with StreamBuffer(execution.context.recorder, "qa/1") as buffer:
        for token in tokens:
            buffer.write(token)

    text = "".join(tokens)
    assert "".join(pieces(execution)) == text
    assert len(pieces(execution)) <= len(text.encode()) // (GROUP_BYTES - 3) + 1


@pytest.mark.parametrize("shift", range(4))
async def test_no_character_is_split_and_no_event_is_too_large(shift: int) -> None:
    execution = make_execution()
    text = "x" * shift + "😀é" * 500

    with StreamBuffer(execution.context.recorder, "qa/1") as buffer:
        buffer.write(text)

    sizes = [len(piece.encode()) for piece in pieces(execution)]
    assert "".join(pieces(execution)) == text
    assert all(GROUP_BYTES - 4 < size <= GROUP_BYTES for size in sizes[:-1])


async def test_held_text_is_emitted_while_no_more_arrives() -> None:
    emitted = asyncio.Event()

    class Sink(MemorySink):
        def emit(self, event: AnyEvent) -> None:
            MemorySink.emit(self, event)
            emitted.set()

    sink = Sink(make_run())

    with StreamBuffer(RunRecorder(sink), "qa/1") as buffer:
        buffer.write("a little")
        await asyncio.wait_for(emitted.wait(), timeout=60)
        assert [event.model_dump()["content"] for event in sink.events] == ["a little"]


async def test_restarted_text_replaces_the_former_message() -> None:
    execution = make_execution()

    with StreamBuffer(execution.context.recorder, "qa/1") as buffer:
        buffer.write("x" * GROUP_BYTES + "The disk is on fire")
        buffer.write("The disk is fine.", restart=True)

    assert [part["message_id"] for part in execution.events("thinking")] == ["qa/1", "qa/1.1"]
    assert execution.text == "The disk is fine."
    assert "on fire" not in "".join(pieces(execution))
