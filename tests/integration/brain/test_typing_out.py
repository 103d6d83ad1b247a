"""Text for the user: many tokens make few events, none of them large, and nothing is lost between them."""

from time import monotonic

import pytest

from tests.integration.brain.test_answering import plan_one_look, typed
from tests.support.model_script import Answer
from tests.support.platform import ModelSays, Platform

GROUP_BYTES, GROUP_SECONDS = 512, 0.05
TOKENS = 2_000


def sizes(pieces: list[str]) -> list[int]:
    return [len(piece.encode()) for piece in pieces]


async def test_thousands_of_tokens_make_few_events(platform: Platform, says: ModelSays) -> None:
    text = " ".join(f"wört{number}" for number in range(TOKENS))
    plan_one_look(says)
    says.qa(Answer(text))
    begun = monotonic()

    told = await platform.ask("How is the disk?")

    pieces = [part["content"] for part in told.of("thinking")]
    ticks = (monotonic() - begun) / GROUP_SECONDS
    assert typed(told) == told.reply == text
    assert max(sizes(pieces)) <= GROUP_BYTES
    assert len(pieces) <= len(text.encode()) / (GROUP_BYTES - 3) + ticks + 1


@pytest.mark.parametrize("shift", range(4))
async def test_no_character_is_split_and_no_piece_is_too_large(platform: Platform, says: ModelSays, shift: int) -> None:
    text = "x" * shift + "😀é" * 500
    plan_one_look(says)
    says.qa(Answer(text))

    told = await platform.ask("How is the disk?")

    pieces = [part["content"] for part in told.of("thinking")]
    assert "".join(pieces) == told.reply == text
    assert all(GROUP_BYTES - 4 < size <= GROUP_BYTES for size in sizes(pieces[:-1]))
