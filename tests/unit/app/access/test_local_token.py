"""The local token: made once, kept to its owner, replaced where others could read it."""

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from starling.app.access.local_token import PREFIX, local_token, read_token, token_file


def test_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    made = local_token(folder)

    assert made.startswith(PREFIX)
    assert len(made) > len(PREFIX) + 32
    assert (local_token(folder), read_token(folder)) == (made, made)
    assert token_file(folder).stat().st_mode & 0o777 == 0o600
    assert [file.name for file in folder.iterdir()] == ["token"]


@pytest.mark.parametrize("unsafe", [False, True], ids=["no file", "a file that others can read"])
def test_all_who_ask_at_once_get_the_token_that_stays(tmp_path: Path, unsafe: bool) -> None:
    for number in range(20):
        folder = tmp_path / str(number)
        if unsafe:
            folder.mkdir()
            token_file(folder).touch(0o644)
        together = Barrier(8)

        def ask(folder: Path = folder, together: Barrier = together) -> str:
            together.wait()
            return local_token(folder)

        with ThreadPoolExecutor(8) as threads:
            found = {future.result() for future in [threads.submit(ask) for _ in range(8)]}
        assert found == {read_token(folder)}


def test_draft_of_a_process_with_the_same_id_in_another_container_is_left_alone(tmp_path: Path) -> None:
    draft = tmp_path / f".token.{os.getpid()}.new"
    draft.touch()

    assert local_token(tmp_path)
    assert draft.exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_token_that_others_could_read_is_no_token_and_replaced(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    before = local_token(tmp_path)
    token_file(tmp_path).chmod(mode)

    read = read_token(tmp_path)
    with caplog.at_level(logging.WARNING):
        after = local_token(tmp_path)

    assert (read, after != before, read_token(tmp_path)) == ("", True, after)
    assert "replaced" in caplog.text


def test_file_that_holds_something_else_is_no_token(tmp_path: Path) -> None:
    token_file(tmp_path).write_bytes(b"\xff")
    token_file(tmp_path).chmod(0o600)

    assert read_token(tmp_path) == ""
    assert local_token(tmp_path).startswith(PREFIX)


def test_folder_that_cannot_be_written_to_has_no_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()

    assert local_token(tmp_path / "file" / "data") == ""
    assert "Admins need a key" in caplog.text
