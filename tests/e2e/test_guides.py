"""The guides' commands, run as they are written, against a platform that runs.

A block in `sh` or `console` is run; one in `text` is only looked at. A comment before it changes that:
`<!-- not run: reason -->`, `<!-- exit code: 10 -->` for its first command, and before `json` `<!-- file: name -->`,
which writes the block into the folder where the commands are run.
"""

import re
import subprocess
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.command_line import Home, new_home

ROOT = Path(__file__).parents[2]
GUIDES = (
    "getting-started",
    "configuring-servers",
    "models",
    "keys",
    "custom-agents",
    "reading-a-trace",
    "operating",
    "api",
    "reloading-safely",
)
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_COMMAND = re.compile(r"(?P<command>(?:\\.|[^\n\\])*)\n?(?P<output>.*)", re.DOTALL)
_ID = re.compile(r"sk-starling-[\w-]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ADDRESS = "http://127.0.0.1:8000"
_SECONDS = 60

pytestmark = pytest.mark.timeout(180)  # most commands are a process that imports everything


@dataclass(frozen=True)
class Block:
    """One fenced block, and the comment before it."""

    mark: str
    language: str
    text: str

    @property
    def is_run(self) -> bool:
        return self.language in {"sh", "console"} and not self.mark.startswith("not run")

    @property
    def file(self) -> str:
        return self.mark.removeprefix("file: ") if self.mark.startswith("file: ") else ""

    @property
    def exit_code(self) -> int:
        found = re.fullmatch(r"exit code: (\d+)", self.mark)
        return int(found[1]) if found else 0

    def commands(self) -> Iterator[tuple[str, str]]:
        """Give each command and what it is said to print."""
        pieces = (
            re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:] if self.language == "console" else _lines(self.text)
        )
        for piece in pieces:
            found = _COMMAND.fullmatch(piece)
            assert found
            yield found["command"], found["output"]


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


def _lines(text: str) -> list[str]:
    return text.replace("\\\n", " ").splitlines()


def blocks(path: str) -> list[Block]:
    text = (ROOT / path).read_text("utf-8")
    return [Block(found["mark"] or "", found["language"], found["text"]) for found in _BLOCK.finditer(text)]


@pytest.fixture(scope="module")
def reader() -> Generator[Reader]:
    """Somebody with what the README tells to make, beside the `starling up` that the guides begin with."""
    with new_home() as home:
        (home.folder / ".venv").symlink_to(sys.prefix)
        (home.folder / ".tools").symlink_to(ROOT / ".tools")
        servers = next(block for block in blocks("README.md") if block.language == "json")
        (home.folder / "mcp.json").write_text(servers.text)
        (home.folder / ".curlrc").write_text("fail\n")  # a status of 400 or more is an exit code
        with home.running("up", "--port", "0") as platform:
            yield Reader(home, platform.url)


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_can_be_followed(reader: Reader, guide: str) -> None:
    found = blocks(f"docs/guides/{guide}.md")
    assert found

    for block in found:
        reader.follow(block)


@pytest.mark.parametrize("guide", GUIDES)
def test_what_isnt_run_has_a_reason(guide: str) -> None:
    found = blocks(f"docs/guides/{guide}.md")
    marks = [block.mark for block in found if block.mark]

    assert [mark for mark in marks if not re.fullmatch(r"not run: .{10,}|exit code: \d+|file: [\w.]+", mark)] == []
    assert {block.language for block in found} <= {"sh", "console", "text", "json", "yaml"}
