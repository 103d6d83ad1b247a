"""Executes the steps of a Dockerfile in a plain folder, and its image's commands as the image's user.

Each stage is a folder. While a stage is made, and for the last one afterwards, that folder is called `image`, so that
the paths in scripts and links of one stage hold in the next one, as they do in images. Absolute paths of the steps
are moved below it; a step that names others is refused, since it would change this machine.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.dockerfile import Dockerfile, Instruction, Stage, context_files, expand

_MOVED = ("/opt", "/build", "/usr/local", "/var/lib/starling", "/home/starling")
_KEPT = ("/tmp", "/dev")
_SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
_PATH = re.compile(r"(?<![\w./*-])/[\w.-]+(?:/[\w.*-]+)*")
_NOT_COPIED = ("site-packages", "test", "idlelib", "config-*", "turtledemo", "ensurepip")


@dataclass(slots=True)
class ImageReplay:
    """The stages of a Dockerfile, made in a folder that other users may enter.

    `arguments` are build arguments; `environment` overrides variables of the steps, not of the image.
    """

    dockerfile: Dockerfile
    context: Path
    folder: Path
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    variables: dict[str, str] = field(default_factory=dict[str, str])
    workdir: str = "/"

    @property
    def root(self) -> Path:
        """The folder of the stage that is being made, or was made last."""
        return self.folder / "image"

    def build(self, target: str) -> None:
        """Make a stage, and before it the stages that it begins with or copies from."""
        for stage in self._needed(target):
            if self.root.exists():
                self.root.rename(self.folder / self._built)
            self._begin(stage)
            for instruction in stage.instructions:
                self._step(instruction)
            self._built = stage.name

    _built: str = ""

    def command(self, words: Sequence[str], *, user: str) -> list[str]:
        """Return the command that runs `words` in the image as `uid:gid`, without groups and capabilities."""
        uid, gid = user.split(":")
        dropped = ("--clear-groups", "--no-new-privs", "--bounding-set", "-all", "--inh-caps", "-all")
        moved = [self.moved(word) for word in words]
        program = shutil.which(moved[0], path=self.image_environment["PATH"])
        assert program, f"{moved[0]} isn't in the PATH of the image"
        return ["setpriv", "--reuid", uid, "--regid", gid, *dropped, "--", program, *moved[1:]]

    @property
    def image_environment(self) -> dict[str, str]:
        """The variables of the image."""
        return {name: self.moved(value) for name, value in self.variables.items()}

    def moved(self, text: str) -> str:
        """Return the text with its absolute paths below the folder. Raises ValueError for a path of this machine."""
        return _PATH.sub(lambda found: self._moved_path(found[0]), text)

    def _moved_path(self, path: str) -> str:
        if any(path == top or path.startswith(f"{top}/") for top in _MOVED):
            return f"{self.root}{path}"
        if path in _SYSTEM.split(":") or path.startswith((*_KEPT, str(self.folder))):
            return path
        raise ValueError(f"{path} isn't below {', '.join(_MOVED)}: the step would change this machine")

    def _needed(self, target: str) -> list[Stage]:
        """Return the stages that a target is made of, in the order of the file."""
        wanted, names = {target}, {stage.name for stage in self.dockerfile.stages}
        for stage in reversed(self.dockerfile.stages):
            if stage.name in wanted:
                copied = {each.flags["from"] for each in stage.instructions if "from" in each.flags}
                wanted |= ({stage.base} | copied) & names
        return [stage for stage in self.dockerfile.stages if stage.name in wanted]

    def _begin(self, stage: Stage) -> None:
        if (earlier := self.folder / stage.base).exists():
            subprocess.run(["cp", "--archive", "--link", earlier, self.root], check=True)  # it keeps owners
            return
        if not stage.base.startswith("python:"):
            raise ValueError(f"{stage.base} can't be replayed: it is no Python")
        _copy_python(self.root / "usr/local")
        self.variables = {"PATH": f"/usr/local/bin:{_SYSTEM}", "LD_LIBRARY_PATH": "/usr/local/lib"}
        self.workdir = "/"

    def _step(self, instruction: Instruction) -> None:
        match instruction.name:
            case "ARG":
                defaults = instruction.pairs
                self.variables |= {name: self.arguments.get(name, value) for name, value in defaults.items()}
            case "ENV":
                given = {name: expand(value, self.variables) for name, value in instruction.pairs.items()}
                self.variables |= given
            case "WORKDIR":
                self.workdir = instruction.rest
                self._here.mkdir(parents=True, exist_ok=True)
            case "COPY":
                self._copy(instruction)
            case "RUN":
                self._run(instruction.rest)
            case "USER" | "EXPOSE" | "HEALTHCHECK" | "ENTRYPOINT" | "CMD":
                pass  # of the image; no step
            case _:
                raise ValueError(f"{instruction.name} can't be replayed")

    @property
    def _here(self) -> Path:
        return Path(self.moved(self.workdir))

    def _run(self, command: str) -> None:
        machine = {name: os.environ[name] for name in os.environ if name == "HOME" or name.startswith(("PIP_", "SSL_"))}
        environment = {**machine, **self.image_environment, **self.environment}
        done = subprocess.run(
            ["/bin/sh", "-c", self.moved(command)],
            cwd=self._here,
            env=environment,
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"

    def _copy(self, instruction: Instruction) -> None:
        *sources, target = instruction.words
        goal = Path(self.moved(target)) if target.startswith("/") else self._here / target
        into = target.endswith("/") or len(sources) > 1
        if "from" in instruction.flags:
            for source in sources:
                found = self.folder / instruction.flags["from"] / source.lstrip("/")
                _copy_all(found, goal / found.name if into else goal)
            return
        patterns = (self.context / ".dockerignore").read_text("utf-8")
        for source in sources:
            files = list(context_files(self.context, source, patterns))
            assert files, f"COPY {source}: the context has no such file"
            for file in files:
                within = file.relative_to(source) if str(file) != source else Path(file.name if into else ".")
                _copy_all(self.context / file, goal / within)


def _copy_all(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, copy_function=_link, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or a file of another user
        shutil.copy2(source, target)


def _copy_python(prefix: Path) -> None:
    """Put the Python of this machine, with pip, into a folder, as images of Python have it."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = Path(os.__file__).parent
    ignored = shutil.ignore_patterns(*_NOT_COPIED)
    shutil.copytree(library, prefix / "lib" / version, symlinks=True, copy_function=_link, ignore=ignored)
    pip = library / "site-packages/pip"
    shutil.copytree(pip, prefix / "lib" / version / "site-packages/pip", copy_function=_link)
    for shared in Path(sysconfig.get_config_var("LIBDIR")).glob("libpython*.so*"):
        shutil.copy2(shared, prefix / "lib" / shared.name)
    programs = prefix / "bin"
    programs.mkdir()
    shutil.copy2(Path(sys.executable).resolve(), programs / version)
    for name in ("python3", "python"):
        (programs / name).symlink_to(version)
