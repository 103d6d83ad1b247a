"""The wordings that an epoch pins, with their texts."""

import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from brain.prompts import NAMES, Prompt, PromptSet, prompt, versions
from brain.registry.manifest import Manifest
from starling.core.llm import PromptVersion

_log = logging.getLogger(__name__)


class PromptTexts(Protocol):
    """Stored texts of prompts."""

    async def texts(self, hashes: Collection[str]) -> Mapping[str, str]:
        """Return texts by hash; one that isn't stored is left out."""
        ...


def kept_prompts(manifest: Manifest) -> Mapping[str, object]:
    """Return the members of a manifest that pin prompts, as they are; prompts without a pin get the program's text."""
    pins = {name: manifest.prompts.get(name, own) for name, own in versions().items()}
    return {
        "prompts": pins,
        "prompt_origins": {name: at for name, at in manifest.prompt_origins.items() if name in pins},
    }


async def pinned_prompts(manifest: Manifest, stored: PromptTexts) -> PromptSet:
    """Return what runs of the epoch work with.

    It is the program's own text where an epoch of an earlier version pinned one that wasn't stored, or one with
    variables that the program no longer has.
    """
    pins = {name: manifest.prompt_version(name) for name in NAMES if name in manifest.prompts}
    foreign = {pin.hash for name, pin in pins.items() if pin.hash != prompt(name).used.hash}
    texts: Mapping[str, str] = await stored.texts(foreign) if foreign else {}
    found = {name: _prompt(pin, texts) for name, pin in pins.items()}
    return PromptSet({name: one for name, one in found.items() if one is not None})


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
