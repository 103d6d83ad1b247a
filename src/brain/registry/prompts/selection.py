"""The choice among the sources of prompts: Langfuse, a folder of files, the program itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from brain.prompts.checks import fault_of, whole_text
from brain.registry.manifest import Manifest
from brain.registry.prompts.choice import PromptChoice, program_prompts
from brain.registry.prompts.repository import PromptRepository, StoredPrompt
from brain.registry.repository import EpochRepository
from starling.core.errors import PromptSourceUnavailableError
from starling.core.json import digest
from starling.core.llm import PromptVersion
from starling.core.prompts import PROMPT_NAMES, OfferedPrompt, Offers, PromptSource, RefusedPrompt

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
        state = await self.stored.state()
        texts, faults = await self._local()
        if self.remote is None:
            return PromptChoice(texts, faults, stored=state)
        active = (await self.epochs.active()).manifest
        try:
            offers = await self.remote.offers()
        except PromptSourceUnavailableError as error:
            found = await self._without_remote(active, texts, {**faults, REMOTE: str(error)})
        else:
            found = _with_offers(active, texts, faults, offers)
        return PromptChoice(*found, stored=state)

    async def _local(self) -> tuple[dict[str, StoredPrompt], dict[str, str]]:
        found, refused = usable(await self.local.offers())
        own = {name: one for name, one in program_prompts().items() if name not in refused}
        return {**own, **found}, refused

    async def _without_remote(
        self, active: Manifest, texts: dict[str, StoredPrompt], faults: dict[str, str]
    ) -> tuple[Mapping[str, StoredPrompt], Mapping[str, str]]:
        latest = await self.stored.latest()
        for name in PROMPT_NAMES:
            last = latest.get(name)
            if last is not None and last.version.source == REMOTE and not fault_of(name, last.text):
                texts[name] = last
            elif name in active.prompt_origins:
                texts.pop(name, None)
        return texts, faults


def _with_offers(
    active: Manifest, texts: dict[str, StoredPrompt], faults: dict[str, str], offers: Offers
) -> tuple[Mapping[str, StoredPrompt], Mapping[str, str]]:
    found, refused = usable(offers)
    for name, origin in active.prompt_origins.items():
        if name not in offers and name not in faults:
            where = f"`{origin.name}` with the label `{origin.label}`"
            faults[name] = f"Langfuse has no {where} any more: the local text is used."
    kept = {name: one for name, one in texts.items() if name not in refused}
    return {**kept, **found}, {**faults, **refused}


def usable(offers: Offers) -> tuple[dict[str, StoredPrompt], dict[str, str]]:
    """Return the texts that can be used, and why others can't."""
    found: dict[str, StoredPrompt] = {}
    refused: dict[str, str] = {}
    for name, offer in offers.items():
        match offer:
            case RefusedPrompt(reason):
                refused[name] = reason
            case OfferedPrompt():
                one = _stored(name, offer)
                if fault := fault_of(name, one.text):
                    refused[name] = f"{_place(name, offer)} can't be used: {fault}"
                else:
                    found[name] = one
    return found, refused


def _stored(name: str, offer: OfferedPrompt) -> StoredPrompt:
    text = whole_text(name, offer.text)
    at = (offer.source, offer.version, offer.label, offer.remote_name)
    return StoredPrompt(text, PromptVersion(name, digest(text), *at))


def _place(name: str, offer: OfferedPrompt) -> str:
    if offer.source == "local":
        return f"The file of `{name}`"
    return f"Langfuse's `{offer.remote_name}`, version {offer.version},"
