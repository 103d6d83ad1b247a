"""The documentation's pages, as their commands: those in fenced blocks and those in the middle of a sentence."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ("README.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/guides/*.md")))

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_COMMAND = re.compile(r"(?P<command>(?:\\.|[^\n\\])*)\n?(?P<output>.*)", re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")
_OURS = re.compile(r"(?:\.venv/bin/)?starling |make |scripts/|--?\w")  # an option may stand alone, too


@dataclass(frozen=True)
class Block:
    """One fenced block, and the comment before it.

    A block in `sh` or `console` is run; one in `text` is only looked at. A comment before it changes that:
    `<!-- not run: reason -->`, `<!-- exit code: 10 -->` for its first command, and before `json` `<!-- file: name -->`,
    which writes the block into the folder where the commands are run.
    """

    mark: str
    language: str
    text: str

    @property
    def has_commands(self) -> bool:
        return self.language in {"sh", "console"}

    @property
    def is_run(self) -> bool:
        return self.has_commands and not self.mark.startswith("not run")

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


def blocks(page: str) -> list[Block]:
    """Return a page's fenced blocks."""
    text = (ROOT / page).read_text("utf-8")
    return [Block(found["mark"] or "", found["language"], found["text"]) for found in _BLOCK.finditer(text)]


def mentions(page: str) -> list[list[str]]:
    """Return, in words, the commands and options of ours that are written about and those that no test runs.

    `starling key create|revoke` is two of them.
    """
    prose = _BLOCK.sub("", (ROOT / page).read_text("utf-8"))
    written = [" ".join(found.split()) for found in _CODE.findall(prose)]
    fenced = [command for block in blocks(page) if block.has_commands for command, _ in block.commands()]
    return [words for text in (*written, *fenced) if _OURS.match(text) for words in _alternatives(text)]


def _alternatives(text: str) -> Iterator[list[str]]:
    words = shlex.split(text, comments=True)
    several = next((word for word in words if re.fullmatch(r"\w+(\|\w+)+", word)), "")
    for choice in several.split("|"):
        yield [choice if word == several else word for word in words]


def _lines(text: str) -> list[str]:
    return text.replace("\\\n", " ").splitlines()
