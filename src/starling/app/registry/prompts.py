"""Prompts as they are in force, stored, and at their sources."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from brain.prompts import program_text, prompt
from brain.registry.manifest import Manifest
from brain.registry.prompt_versions import REMOTE, PromptChoice, PromptSelection, program_prompts
from brain.registry.repository import EpochRepository, PromptRepository, StoredPrompt
from starling.core.errors import ConflictError, NotFoundError
from starling.core.llm import PromptVersion
from starling.core.prompts import PROMPT_NAMES

_HASH: Final = re.compile("[0-9a-f]{6,64}")
_REMEDY: Final = "`starling prompt list` shows those in force; a hash needs six digits or more."


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptInForce(PromptVersion):
    """The wording of a prompt in the active epoch; `since` is the first epoch that has it without a break."""

    since: int


@dataclass(frozen=True, slots=True)
class PromptList:
    """The prompts of the active epoch; before the first epoch those of the program, since epoch 0."""

    epoch: int
    prompts: Sequence[PromptInForce]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPrompt(PromptVersion):
    """A wording with its text: instructions, a line `---`, and the part with the data.

    `variables` are those that a text of this prompt has to have, `in_force` says whether the active epoch has it.
    """

    text: str
    variables: tuple[str, ...]
    in_force: bool


@dataclass(frozen=True, slots=True)
class PromptDifference:
    """What a reload would change of a prompt; `diff` are the lines of a unified diff."""

    before: PromptVersion | None
    after: PromptVersion
    diff: Sequence[str]


@dataclass(frozen=True, slots=True)
class SourceTexts:
    """What the sources have and a reload would take, by prompt.

    `warnings` says, by prompt or for the source `langfuse`, why a text isn't used.
    """

    changes: Mapping[str, PromptDifference]
    warnings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PromptCatalog:
    """Shows prompts, and stores what their sources have now. Changes no epoch."""

    selection: PromptSelection
    stored: PromptRepository
    epochs: EpochRepository

    async def list(self) -> PromptList:
        """Return the prompts of the active epoch."""
        active = await self.epochs.active()
        since = await self.epochs.prompts_since()
        manifest = _with_all(active.manifest)
        versions = [manifest.prompt_version(name) for name in PROMPT_NAMES]
        return PromptList(
            active.number, [PromptInForce(**asdict(one), since=since.get(one.name, 0)) for one in versions]
        )

    async def show(self, wanted: str) -> ShownPrompt:
        """Return the wording in force of a prompt, or any stored one by the beginning of its hash.

        Raises NotFoundError, ConflictError for a beginning that several hashes share.
        """
        manifest = _with_all((await self.epochs.active()).manifest)
        if wanted in PROMPT_NAMES:
            version = manifest.prompt_version(wanted)
            return _shown(StoredPrompt(await self._text(version), version), manifest)
        found: dict[str, StoredPrompt] = {}
        if _HASH.fullmatch(wanted):
            own = [one for one in program_prompts().values() if one.version.hash.startswith(wanted)]
            found = {one.version.hash: one for one in (*own, *await self.stored.starting_with(wanted, 10))}
        if not found:
            raise NotFoundError("prompt", wanted, _REMEDY)
        if len(found) > 1:
            raise ConflictError(f"Several prompts have a hash that begins with {wanted}.", "Give more of its digits.")
        return _shown(found.popitem()[1], manifest)

    async def diff(self, name: str | None = None) -> SourceTexts:
        """Return what the sources have now and a reload would take, of all prompts or one. Raises NotFoundError."""
        if name is not None and name not in PROMPT_NAMES:
            raise NotFoundError("prompt", name, _REMEDY)
        found = await self._compared(await self.selection.newest())
        if name is None:
            return found
        others = set(PROMPT_NAMES) - {name}
        changes = {key: one for key, one in found.changes.items() if key not in others}
        return SourceTexts(changes, {key: why for key, why in found.warnings.items() if key not in others})

    async def pull(self) -> SourceTexts:
        """Store what the sources have now, for a reload while Langfuse is away; return what it would change."""
        choice = await self.selection.newest()
        if REMOTE not in choice.faults:
            await self.stored.store([*choice.texts.values()])
        return await self._compared(choice)

    async def _compared(self, choice: PromptChoice) -> SourceTexts:
        manifest = (await self.epochs.active()).manifest
        after = choice.applied(manifest)
        changes: dict[str, PromptDifference] = {}
        for name in choice.texts:
            old = manifest.prompt_version(name) if name in manifest.prompts else None
            new = after.prompt_version(name)
            if old != new:
                former, offered = await self._text(old) if old else "", choice.texts[name].text
                names = (_label(old) if old else "nothing", _label(new))
                diff = difflib.unified_diff(former.splitlines(), offered.splitlines(), *names, lineterm="")
                changes[name] = PromptDifference(old, new, [*diff])
        return SourceTexts(changes, choice.faults)

    async def _text(self, version: PromptVersion) -> str:
        """Return the text of a pin; the program's where an earlier version of Starling pinned and didn't store it."""
        if version.hash == prompt(version.name).used.hash:
            return program_text(version.name)
        return (await self.stored.texts([version.hash])).get(version.hash, program_text(version.name))


def _with_all(manifest: Manifest) -> Manifest:
    own = {name: prompt(name).used.hash for name in PROMPT_NAMES}
    return manifest.model_copy(update={"prompts": own | manifest.prompts})


def _shown(found: StoredPrompt, manifest: Manifest) -> ShownPrompt:
    version, own = found.version, prompt(found.version.name)
    in_force = manifest.prompts.get(version.name) == version.hash
    variables = tuple(dict.fromkeys((*own.system.names, *own.user.names)))
    return ShownPrompt(**asdict(version), text=found.text, variables=variables, in_force=in_force)


def _label(version: PromptVersion) -> str:
    place = f"{version.remote_name} version {version.version}" if version.source == REMOTE else version.source
    return f"{version.name} ({place}, {version.hash[:12]})"
