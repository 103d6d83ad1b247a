"""A Dockerfile as its stages and their instructions. Reads what deploy/Dockerfile uses of the format."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_FLAG = re.compile(r"--([a-z-]+)=(\S+)\s+")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its name, its flags (`--from=build`), and the rest as it is written."""

    name: str
    flags: Mapping[str, str]
    rest: str

    @property
    def words(self) -> list[str]:
        """The rest as words: of a JSON list, or separated by spaces."""
        if not self.rest.startswith("["):
            return self.rest.split()
        return [str(word) for word in json.loads(self.rest)]

    @property
    def pairs(self) -> dict[str, str]:
        """The rest as `NAME=value` pairs, without expanding variables; a name without a value has an empty one."""
        return {name: value for name, _, value in (word.partition("=") for word in self.words)}


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: its name, the image or stage that it begins with, and its instructions after FROM."""

    name: str
    base: str
    instructions: Sequence[Instruction]

    def last(self, name: str) -> Instruction | None:
        """Return the last instruction of a name, which replaces the ones before it."""
        return next((each for each in reversed(self.instructions) if each.name == name), None)


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """All stages in order; `arguments` are the defaults of ARG before the first FROM."""

    arguments: Mapping[str, str]
    stages: Sequence[Stage]

    def lineage(self, name: str) -> list[Stage]:
        """Return the stage of a name and those that it begins with, the first one first."""
        by_name = {stage.name: stage for stage in self.stages}
        found: list[Stage] = []
        while name in by_name:
            found.insert(0, by_name[name])
            name = by_name[name].base
        return found

    def last(self, stage: str, name: str) -> Instruction:
        """Return what an image of the stage has of an instruction such as USER, also from the stages it begins with."""
        found = [each for each in (part.last(name) for part in self.lineage(stage)) if each is not None]
        return found[-1]


def read_dockerfile(text: str) -> Dockerfile:
    """Return the stages of a Dockerfile."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for instruction in _instructions(text):
        match instruction.name:
            case "ARG" if not stages:
                arguments |= instruction.pairs
            case "FROM":
                base, _, name = instruction.words
                stages.append(Stage(name, expand(base, arguments), []))
            case _:
                stages[-1] = Stage(stages[-1].name, stages[-1].base, [*stages[-1].instructions, instruction])
    return Dockerfile(arguments, stages)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$NAME` and `${NAME}`; what isn't set is empty, as in Docker."""
    return _VARIABLE.sub(lambda found: variables.get(found[1] or found[2], ""), text)


def is_ignored(path: PurePosixPath, patterns: str) -> bool:
    """Return whether the lines of a `.dockerignore` keep a path of the context out: the last one that fits decides."""
    ignored = False
    ways = [str(path), *map(str, path.parents)][:-1]
    for line in patterns.splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        plain = pattern.removeprefix("!")
        if any(_fits(way, plain) for way in ways):
            ignored = not pattern.startswith("!")
    return ignored


def _fits(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatchcase(PurePosixPath(path).name, pattern.removeprefix("**/"))
    return path.count("/") == pattern.count("/") and fnmatchcase(path, pattern)


def _instructions(text: str) -> Iterator[Instruction]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", "", "\n".join(lines)).splitlines():
        name, _, rest = line.strip().partition(" ")
        if not name:
            continue
        flags: dict[str, str] = {}
        rest = rest.strip()
        while found := _FLAG.match(rest):
            flags[found[1]] = found[2]
            rest = rest[found.end() :]
        yield Instruction(name, flags, rest)


def context_files(root: Path, source: str, patterns: str) -> Iterator[PurePosixPath]:
    """Yield the files of the build context that COPY takes for a source, a file or folder."""
    found = root / source
    files = found.rglob("*") if found.is_dir() else [found]
    for file in sorted(files):
        path = PurePosixPath(file.relative_to(root))
        if file.is_file() and not is_ignored(path, patterns):
            yield path
