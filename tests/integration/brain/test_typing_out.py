"""Text for the user: many tokens make few events, none of them large, and nothing is lost between them."""

from time import monotonic

import pytest

from tests.integration.brain.test_answering import plan_one_look, typed
from tests.support.model_script import Answer
from tests.support.platform import Platform, ScriptedModel

GROUP_BYTES, GROUP_SECONDS = 512, 0.05
TOKENS = 2_000


def sizes(pieces: list[str]) -> list[int]:
    return [len(piece.encode()) for piece in pieces]


async def test_thousands_of_tokens_make_few_events(platform: Platform, script: ScriptedModel) -> None:
    text = " ".join(f"wört{number}" for number in range(TOKENS))
    plan_one_look(script)
    script.qa(Answer(text))
    begun = monotonic()

    stream = await platform.ask("How is the disk?")

    pieces = [part["content"] for part in stream.of("thinking")]
    ticks = (monotonic() - begun) / GROUP_SECONDS
    assert typed(stream) == stream.reply == text
    assert max(sizes(pieces)) <= GROUP_BYTES
    assert len(pieces) <= len(text.encode()) / (GROUP_BYTES - 3) + ticks + 1


@pytest.mark.parametrize("shift", range(4))
async def test_no_character_is_split_and_no_piece_is_too_large(
    platform: Platform, script: ScriptedModel, shift: int
) -> None:
    text = "x" * shift + "😀é" * 500
    plan_one_look(script)
    script.qa(Answer(text))

    stream = await platform.ask("How is the disk?")

    pieces = [part["content"] for part in stream.of("thinking")]
    assert "".join(pieces) == stream.reply == text
    assert all(GROUP_BYTES - 4 < size <= GROUP_BYTES for size in sizes(pieces[:-1]))
