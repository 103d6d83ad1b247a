"""README and guides: their commands, run as they are written, against a platform that runs."""

import re
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.command_line import Home, new_home
from tests.support.guides import PAGES, ROOT, Block, blocks

_ID = re.compile(r"sk-starling-[\w-]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ADDRESS = "http://127.0.0.1:8000"
_SECONDS = 60

pytestmark = pytest.mark.timeout(180)  # most commands are a process that imports everything


@dataclass
class Reader:
    """Somebody who does what a guide says, with ids and an address of their own."""

    home: Home
    url: str
    ids: dict[str, str] = field(default_factory=dict[str, str])

    def follow(self, block: Block) -> None:
        if block.file:
            (self.home.folder / block.file).write_text(block.text)
        if not block.is_run:
            return
        expected = block.exit_code
        for command, output in block.commands():
            done = self._run(command)
            assert done.returncode == expected, f"{command}\n{done.stdout}{done.stderr}"
            self.ids |= dict(zip(_ID.findall(output), _ID.findall(done.stdout + done.stderr), strict=False))
            expected = 0

    def _run(self, command: str) -> subprocess.CompletedProcess[str]:
        own = _ID.sub(lambda found: self.ids.get(found[0], found[0]), command).replace(_ADDRESS, self.url)
        environment = self.home.environment
        path = f"{Path(sys.executable).parent}:{environment['PATH']}"
        return subprocess.run(
            ["/bin/sh", "-ec", own],
            capture_output=True,
            text=True,
            cwd=self.home.folder,
            env=environment | {"PATH": path, "PORT": self.url.rpartition(":")[2]},
            timeout=_SECONDS,
            check=False,
        )


@pytest.fixture(scope="module")
def reader() -> Generator[Reader]:
    """Somebody in a clone after `make demo`, with the README's `mcp.json`, beside the `starling up` that follows."""
    with new_home() as home:
        (home.folder / ".venv").symlink_to(sys.prefix)
        (home.folder / ".tools").symlink_to(ROOT / ".tools")
        servers = next(block for block in blocks("README.md") if block.language == "json")
        (home.folder / "mcp.json").write_text(servers.text)
        (home.folder / ".curlrc").write_text("fail\n")  # a status of 400 or more is an exit code
        with home.running("up", "--port", "0") as platform:
            yield Reader(home, platform.url)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_followed(reader: Reader, page: str) -> None:
    for block in blocks(page):
        reader.follow(block)


@pytest.mark.parametrize("page", PAGES)
def test_what_isnt_run_has_a_reason(page: str) -> None:
    found = blocks(page)
    marks = [block.mark for block in found if block.mark]

    assert [mark for mark in marks if not re.fullmatch(r"not run: .{10,}|exit code: \d+|file: [\w.]+", mark)] == []
    assert {block.language for block in found} <= {"sh", "console", "text", "json", "yaml", ""}
    assert not [block for block in found if not block.has_commands and re.search(r"^\$ ", block.text, re.MULTILINE)]
