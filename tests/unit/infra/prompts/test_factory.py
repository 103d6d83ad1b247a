"""Prompts from a folder of files."""

import os
from pathlib import Path

import pytest

from starling.core.prompts import OfferedPrompt, RefusedPrompt
from starling.infra.prompts.factory import PromptFolder


async def reason(folder: Path, name: str) -> str:
    offer = (await PromptFolder(folder).offers())[name]
    assert isinstance(offer, RefusedPrompt)
    return offer.reason


async def test_file_is_offered_under_the_name_of_its_prompt_without_a_byte_order_mark(tmp_path: Path) -> None:
    tmp_path.joinpath("qa.md").write_bytes(b"\xef\xbb\xbfAnswer.")
    tmp_path.joinpath("notes.txt").write_text("no prompt")

    assert await PromptFolder(tmp_path).offers() == {"qa": OfferedPrompt("Answer.")}
    assert await PromptFolder(None).offers() == {}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a" * 200_001, "longer than 50,000 characters"),
        (b"ab\xff", "is not UTF-8: invalid start byte at byte 2"),
    ],
)
async def test_file_that_is_no_text_of_a_prompt_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    tmp_path.joinpath("qa.md").write_bytes(content)

    assert told in await reason(tmp_path, "qa")


async def test_what_is_no_regular_file_is_refused_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    tmp_path.joinpath("qa.md").mkdir()
    os.mkfifo(tmp_path / "judge.md")
    tmp_path.joinpath("coder.md").symlink_to(tmp_path / "nowhere")

    assert await reason(tmp_path, "qa") == f"{tmp_path / 'qa.md'} is not a regular file."
    assert await reason(tmp_path, "judge") == f"{tmp_path / 'judge.md'} is not a regular file."
    assert await reason(tmp_path, "coder") == f"{tmp_path / 'coder.md'} can't be read: No such file or directory."


async def test_file_that_belongs_to_no_prompt_is_refused_under_its_own_name(tmp_path: Path) -> None:
    tmp_path.joinpath("langfuse.md").write_text("not the source of this name")

    assert "belongs to no prompt: there are supervisor," in await reason(tmp_path, "langfuse.md")


async def test_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert await reason(tmp_path / "none", "folder") == f"{tmp_path / 'none'} is not a folder."
