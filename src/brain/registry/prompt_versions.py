"""The wordings of prompts that epochs pin: chosen from Langfuse, a folder of files and the program itself."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from brain.prompts import NAMES, Prompt, PromptSet, program_text, prompt, versions
from brain.prompts.checks import fault_of, whole_text
from brain.registry.manifest import Manifest, PromptOrigin
from brain.registry.repository import EpochRepository, PromptRepository, StoredPrompt
from starling.core.errors import PromptSourceUnavailableError
from starling.core.json import digest
from starling.core.llm import PromptVersion
from starling.core.prompts import PROMPT_NAMES, OfferedPrompt, Offers, PromptSource, RefusedPrompt


@dataclass(frozen=True, slots=True)
class PromptChoice:
    """Texts by name of prompt; a prompt without one keeps the text that is in force, as does one with a fault.

    With `keep_remote` a text that is in force and comes from Langfuse is kept too. `faults` says for prompts, or for
    the source itself under its name, why a text isn't used.
    """

    texts: Mapping[str, StoredPrompt]
    faults: Mapping[str, str] = field(default_factory=dict[str, str])
    keep_remote: bool = False

    def applied(self, manifest: Manifest) -> Manifest:
        """Return the manifest with these texts pinned."""
        pins = {
            name: one.version
            for name, one in self.texts.items()
            if not (self.keep_remote and name in manifest.prompt_origins)
        }
        hashes = manifest.prompts | {name: pin.hash for name, pin in pins.items()}
        origins = {name: at for name, at in manifest.prompt_origins.items() if name not in pins}
        origins |= {
            name: PromptOrigin(name=pin.remote_name, version=pin.version, label=pin.label or "")
            for name, pin in pins.items()
            if pin.source != "local" and pin.version is not None
        }
        ordered = {name: hashes[name] for name in NAMES if name in hashes}
        return manifest.model_copy(update={"prompts": ordered, "prompt_origins": origins})

    def pinned_by(self, manifest: Manifest) -> list[StoredPrompt]:
        """Return the texts that a manifest pins."""
        return [one for name, one in self.texts.items() if manifest.prompts.get(name) == one.version.hash]


def program_prompts() -> dict[str, StoredPrompt]:
    """Return the program's own texts."""
    return {name: StoredPrompt(program_text(name), prompt(name).used) for name in NAMES}


REMOTE: Final = "langfuse"  # the name under which its faults are reported


@dataclass(frozen=True, slots=True)
class PromptSelection:
    """Chooses the texts of the next epoch. `remote` is None where Langfuse isn't configured."""

    local: PromptSource
    remote: PromptSource | None
    stored: PromptRepository
    epochs: EpochRepository

    async def at_start(self) -> PromptChoice:
        """Return the local texts for the prompts that are not pinned from Langfuse, which isn't asked."""
        texts, faults = await self._local()
        return PromptChoice(texts, faults, keep_remote=self.remote is not None)

    async def newest(self) -> PromptChoice:
        """Return what the sources have now; where Langfuse can't be asked, what it last had."""
        texts, faults = await self._local()
        if self.remote is None:
            return PromptChoice(texts, faults)
        active = (await self.epochs.active()).manifest
        try:
            offers = await self.remote.offers()
        except PromptSourceUnavailableError as error:
            faults[REMOTE] = str(error)
            latest = await self.stored.latest()
            for name in PROMPT_NAMES:
                last = latest.get(name)
                if last is not None and last.version.source == REMOTE and not fault_of(name, last.text):
                    texts[name] = last
                elif name in active.prompt_origins:
                    texts.pop(name, None)
            return PromptChoice(texts, faults)
        found, refused = usable(offers)
        for name, origin in active.prompt_origins.items():
            if name not in offers and name not in faults:
                where = f"`{origin.name}` with the label `{origin.label}`"
                faults[name] = f"Langfuse has no {where} any more: the local text is used."
        kept = {name: one for name, one in texts.items() if name not in refused}
        return PromptChoice({**kept, **found}, {**faults, **refused})

    async def _local(self) -> tuple[dict[str, StoredPrompt], dict[str, str]]:
        found, refused = usable(await self.local.offers())
        own = {name: one for name, one in program_prompts().items() if name not in refused}
        return {**own, **found}, refused


def usable(offers: Offers) -> tuple[dict[str, StoredPrompt], dict[str, str]]:
    """Return the texts that can be used, and why others can't."""
    found: dict[str, StoredPrompt] = {}
    faults: dict[str, str] = {}
    for name, offer in offers.items():
        match offer:
            case RefusedPrompt(reason):
                faults[name] = reason
            case OfferedPrompt():
                text = whole_text(name, offer.text)
                remote = f"Langfuse's `{offer.remote_name}`, version {offer.version},"
                place = f"The file of `{name}`" if offer.source == "local" else remote
                if fault := fault_of(name, text):
                    faults[name] = f"{place} can't be used: {fault}"
                else:
                    at = (offer.source, offer.version, offer.label, offer.remote_name)
                    found[name] = StoredPrompt(text, PromptVersion(name, digest(text), *at))
    return found, faults


_log = logging.getLogger(__name__)


def kept_prompts(manifest: Manifest) -> Mapping[str, object]:
    """Return the members of a manifest that pin prompts, as they are; prompts without a pin get the program's text."""
    pins = {name: manifest.prompts.get(name, own) for name, own in versions().items()}
    return {
        "prompts": pins,
        "prompt_origins": {name: at for name, at in manifest.prompt_origins.items() if name in pins},
    }


async def pinned_prompts(manifest: Manifest, stored: PromptRepository) -> PromptSet:
    """Return what runs of the epoch work with.

    It is the program's own text where an epoch of an earlier version pinned one that wasn't stored, or one with
    variables that the program no longer has.
    """
    pins = {name: manifest.prompt_version(name) for name in NAMES if name in manifest.prompts}
    return PromptSet(await stored_prompts(pins, stored))


async def stored_prompts(pins: Mapping[str, PromptVersion], stored: PromptRepository) -> dict[str, Prompt]:
    """Return the prompts of these versions by name; one that can't be used is left out."""
    foreign = {pin.hash for name, pin in pins.items() if pin.hash != prompt(name).used.hash}
    texts: Mapping[str, str] = await stored.texts(foreign) if foreign else {}
    found = {name: _prompt(pin, texts) for name, pin in pins.items()}
    return {name: one for name, one in found.items() if one is not None}


def _prompt(pin: PromptVersion, texts: Mapping[str, str]) -> Prompt | None:
    own = prompt(pin.name)
    if pin.hash == own.used.hash:
        return Prompt(pin, own.system, own.user, own.attributes)
    if pin.hash not in texts:
        return None  # of an epoch that was made before texts were stored
    made = Prompt.of(texts[pin.hash], pin)
    if unknown := {*made.system.names, *made.user.names} - {*own.system.names, *own.user.names}:
        _log.warning(
            "the prompt %s (%s) has variables that this version of Starling doesn't fill: %s; its own text is used",
            pin.name,
            pin.hash[:12],
            ", ".join(sorted(unknown)),
        )
        return None
    return made
