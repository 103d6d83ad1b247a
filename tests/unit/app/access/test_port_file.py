"""The port file: published while a platform runs, found by commands, recognised when it is out of date."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from starling.app.access.port_file import RunningPlatform, find_platform, local_address, published

_PLATFORM = RunningPlatform("http://127.0.0.1:4711", "0.1.0", 4711, "embedded", keyless=True)


def test_platform_is_found_while_it_runs_and_not_after(tmp_path: Path) -> None:
    before = find_platform(tmp_path)
    with published(tmp_path, _PLATFORM):
        during = find_platform(tmp_path)

    assert (before, during, find_platform(tmp_path)) == (None, _PLATFORM, None)
    assert list((tmp_path / "api").iterdir()) == []


def test_file_of_a_killed_process_is_not_believed_and_removed(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys; from starling.app.access.port_file import *;"
        "held = published(pathlib.Path(sys.argv[1]), RunningPlatform('http://x', '0', os.getpid(), 'embedded', True))"
        "; held.__enter__(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, env={"PYTHONPATH": ":".join(sys.path)})
    left = list((tmp_path / "api").iterdir())

    assert len(left) == 1
    assert find_platform(tmp_path) is None
    assert not left[0].exists()


def test_the_platform_with_the_wanted_database_is_found_among_several(tmp_path: Path) -> None:
    other = replace(_PLATFORM, pid=4712, database="0123456789abcdef")

    with published(tmp_path, _PLATFORM), published(tmp_path, other):
        found = [find_platform(tmp_path, name) for name in ("embedded", "0123456789abcdef", "another")]

    assert found == [_PLATFORM, other, None]


@pytest.mark.parametrize("ended", [0, 1])
def test_platform_with_the_same_process_id_keeps_its_file_when_the_other_ends(tmp_path: Path, ended: int) -> None:
    platforms = [replace(_PLATFORM, pid=1, address=f"http://10.0.0.{number}") for number in (1, 2)]
    contexts = [published(tmp_path, platform) for platform in platforms]
    for context in contexts:
        context.__enter__()

    contexts[ended].__exit__(None, None, None)
    left = find_platform(tmp_path)
    contexts[1 - ended].__exit__(None, None, None)

    assert left == platforms[1 - ended]


def test_platform_of_another_protocol_is_passed_over(tmp_path: Path) -> None:
    with published(tmp_path, replace(_PLATFORM, protocol=99)):
        assert find_platform(tmp_path) is None


def test_the_file_is_only_for_its_owner(tmp_path: Path) -> None:
    with published(tmp_path, _PLATFORM):
        (file,) = (tmp_path / "api").iterdir()

        assert file.stat().st_mode & 0o777 == 0o600


def test_folder_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "api").write_text("no folder")

    with published(tmp_path, replace(_PLATFORM, pid=os.getpid())):
        assert find_platform(tmp_path) is None

    assert "STARLING_URL" in caplog.text


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("http://0.0.0.0:80", "http://127.0.0.1:80"),
        ("http://[::]:80", "http://[::1]:80"),
        ("http://10.0.0.7:80", "http://10.0.0.7:80"),
        ("http://127.0.0.1:80", "http://127.0.0.1:80"),
    ],
)
def test_address_on_this_machine(address: str, here: str) -> None:
    assert local_address(address) == here
