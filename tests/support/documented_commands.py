"""The documentation's pages, as their commands: those in fenced blocks and those in the middle of a sentence."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ("README.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/guides/*.md")))
REFERENCE: Final = tuple(f"docs/reference/{name}.md" for name in ("api", "servers", "teams"))
"""Pages that are written by hand and have no commands to run."""

NOT_RUN: Final = {
    "make demo": "tests/e2e/test_demo.py runs it",
    "make reference": "tests/unit/docs/test_reference.py holds what it writes",
    "make test": "it runs the tests, and a test that runs it",
    "make console": "a part of `make test`",
    "make quick": "a part of `make test`",
    "make check": "CI runs it beside the tests",
    "make bench": "it takes minutes, and a machine with nothing else to do",
    ".venv/bin/python -m bench.run": "a part of `make bench`",
    ".venv/bin/python -m bench.load": "it takes a machine with nothing else to do; tests/integration/bench runs it",
    ".venv/bin/python examples/servers/shop.py": "it runs already, on a free port",
    ".venv/bin/python -m bench.sizing": "it writes into the guide on deploying what `bench.run deploy` measured",
    "starling init": "it writes settings that the commands of other pages would read; tests read what it writes",
    "pip install": "it changes the environment that the tests run in",
    "scripts/uv pip install": "it changes the environment that the tests run in",
}
"""Beginnings of commands that no test runs, and why."""

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_COMMAND = re.compile(r"(?P<command>(?:\\.|[^\n\\])*)\n?(?P<output>.*)", re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")
_OURS = re.compile(r"(?:\.venv/bin/)?starling |make |scripts/|--?\w")  # an option may stand alone, too
_PROGRAM = re.compile(
    r"(?:\.venv/bin/\S+|\.tools/\S+|scripts/\S+"
    r"|starling|make|curl|ollama|docker|kubectl|systemctl|pip|uv|python3?|git|export|psql|npm|cd|kill) \S"
    r"|--?\w"
)
_IN_TEXT = re.compile(r"(?:\.venv/bin/\S+|\bstarling|\bcurl|\bscripts/\S+) [^|>;&`\n]*")
_ENDS = {"|", "||", "&&", ";", ">", ">>", "<", "&"}


@dataclass(frozen=True)
class Block:
    """One fenced block, and the comment before it.

    A block in `sh` or `console` is run; one in another language is only looked at. A comment before it says more:
    `<!-- exit code: 10 -->` for its first command, and before another `<!-- file: name -->`, which writes the
    block into the folder where the commands are run.
    """

    mark: str
    language: str
    text: str

    @property
    def is_run(self) -> bool:
        return self.language in {"sh", "console"}

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


@dataclass(frozen=True)
class DocumentedCommand:
    """A command line as somebody wrote it. Words in capitals, and what has an `…`, stand for anything."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, words: Sequence[str]) -> "DocumentedCommand":
        """Read a command line, wherever it has our program and whatever comes before its command."""
        program = words[0].removeprefix(".venv/bin/") if words[0].endswith("/starling") else words[0]
        early = 3 if words[1:2] == ["--settings"] else 1
        return cls((program, *words[early:], *words[1:early]))

    @property
    def options(self) -> frozenset[str]:
        return frozenset(word.partition("=")[0] for word in self.words if re.match(r"--?\w", word))

    @property
    def argument_words(self) -> Sequence[str]:
        """What it is called and given, up to its options, and after a `--`."""
        first = next((place for place, word in enumerate(self.words) if word in self.options), len(self.words))
        after = self.words[self.words.index("--") :] if "--" in self.words[first:] else ()
        return (*self.words[:first], *after)

    def is_shown_by(self, other: "DocumentedCommand") -> bool:
        """Return whether who runs the other one has run this one, but for what it was given."""
        said, done = self.argument_words, other.argument_words
        return (
            self.options <= other.options
            and len(said) <= len(done)
            and all(_fits(*pair) for pair in zip(said, done, strict=False))
        )

    def __str__(self) -> str:
        return " ".join(self.words)


def blocks(page: str) -> list[Block]:
    """Return a page's fenced blocks."""
    text = (ROOT / page).read_text("utf-8")
    return [Block(found["mark"] or "", found["language"], found["text"]) for found in _BLOCK.finditer(text)]


@cache
def runs(page: str) -> tuple[DocumentedCommand, ...]:
    """Return the command lines of a page that a reader runs, those in pipes and behind others, too."""
    commands = [command for block in blocks(page) if block.is_run for command, _ in block.commands()]
    return tuple(written for command in commands if not reason_not_to_run(command) for written in _split(command))


def reason_not_to_run(command: str) -> str:
    """Return why no test runs a command; empty for those that are run."""
    return next((why for start, why in NOT_RUN.items() if f"{command} ".startswith(f"{start} ")), "")


def mentions(page: str) -> list[list[str]]:
    """Return, in words, the commands and options of ours that are written about outside of what is run.

    `starling key create|revoke` is two of them.
    """
    return [words for text in _prose(page) if _OURS.match(text) for words in _alternatives(text)]


def unshown(page: str) -> list[str]:
    """Return the commands that a page writes about and nobody runs."""
    shown = [block.text for block in blocks(page) if not block.is_run]
    lines = [*_prose(page), *(line for text in shown for line in _IN_TEXT.findall(text))]
    return [line for line in lines if not is_shown(line, page)]


def is_shown(line: str, page: str) -> bool:
    """Return whether a line on a page is no command, or is run in a block.

    A command may be run in a block of any page; an option that stands alone, in one of its own page.
    """
    if not _PROGRAM.match(line) or reason_not_to_run(line):
        return True
    return all(_is_shown(DocumentedCommand.of(words), page) for words in _alternatives(line))


def _is_shown(asked: DocumentedCommand, page: str) -> bool:
    if not asked.argument_words:
        return any(asked.options <= each.options for each in runs(page))
    return any(asked.is_shown_by(each) for other in PAGES for each in runs(other))


def _fits(said: str, done: str) -> bool:
    anything = said.isupper() or "…" in said
    return said == done or (anything and done != "--")


def _prose(page: str) -> list[str]:
    return [" ".join(found.split()) for found in _CODE.findall(_BLOCK.sub("", (ROOT / page).read_text("utf-8")))]


def _split(command: str) -> Iterator[DocumentedCommand]:
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in (*lexer, ";"):
        if word not in _ENDS:
            words.append(word)
        elif words:
            yield DocumentedCommand.of(words)
            words = []


def _alternatives(text: str) -> Iterator[list[str]]:
    words = shlex.split(text, comments=True)
    several = next((word for word in words if re.fullmatch(r"\w+(\|\w+)+", word)), "")
    for choice in several.split("|"):
        yield [choice if word == several else word for word in words]


def _lines(text: str) -> list[str]:
    return text.replace("\\\n", " ").splitlines()
