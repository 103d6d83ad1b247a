"""The image of deploy/Dockerfile, made in a plain folder once for all tests of its commands."""

import os
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.dockerfile import read_dockerfile
from tests.support.image_replay import ImageReplay
from tests.support.open_folder import new_open_folder

ROOT = Path(__file__).parents[3]
COMMIT = "0123456789ab"


@pytest.fixture(scope="module")
def image() -> Generator[ImageReplay]:
    """The stage `starling`, as `docker build` makes it, but for compiled modules."""
    yield from replayed({"UV_COMPILE_BYTECODE": "0"}, {"COMMIT": COMMIT})  # that takes 14 s of processor time


@pytest.fixture(scope="module")
def image_with_crewai() -> Generator[ImageReplay]:
    """The same with CrewAI, and with all modules compiled."""
    yield from replayed({}, {"CREWAI": "true"})


def replayed(environment: dict[str, str], arguments: dict[str, str]) -> Generator[ImageReplay]:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can run a command as another user, by setpriv of util-linux")
    dockerfile = read_dockerfile((ROOT / "deploy/Dockerfile").read_text("utf-8"))
    with new_open_folder() as folder:
        replay = ImageReplay(dockerfile, ROOT, folder, arguments, environment)
        replay.build("starling")
        yield replay
