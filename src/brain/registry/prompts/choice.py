"""The wordings that the next epoch pins."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from brain.prompts import NAMES, program_text, prompt
from brain.registry.manifest import Manifest, PromptOrigin
from brain.registry.prompts.repository import StoredPrompt
from starling.core.llm import PromptVersion


@dataclass(frozen=True, slots=True)
class PromptChoice:
    """Texts by name of prompt; a prompt without one keeps the text that is in force, as does one with a fault.

    With `keep_remote` a text that is in force and comes from Langfuse is kept too. `faults` says for prompts, or for
    the source itself under its name, why a text isn't used. `stored` is the state of the stored texts before the
    sources were read: where it is another one now, somebody may have read newer texts. None where that doesn't matter.
    """

    texts: Mapping[str, StoredPrompt]
    faults: Mapping[str, str] = field(default_factory=dict[str, str])
    keep_remote: bool = False
    stored: str | None = None

    def applied(self, manifest: Manifest) -> Manifest:
        """Return the manifest with these texts pinned."""
        pins = {name: one.version for name, one in self.texts.items() if not self._is_kept(manifest, name)}
        hashes = manifest.prompts | {name: pin.hash for name, pin in pins.items()}
        origins = {name: at for name, at in manifest.prompt_origins.items() if name not in pins}
        origins |= {name: at for name, pin in pins.items() if (at := _origin(pin)) is not None}
        ordered = {name: hashes[name] for name in NAMES if name in hashes}
        return manifest.model_copy(update={"prompts": ordered, "prompt_origins": origins})

    def pinned_by(self, manifest: Manifest) -> list[StoredPrompt]:
        """Return the texts that a manifest pins."""
        return [one for name, one in self.texts.items() if manifest.prompts.get(name) == one.version.hash]

    def _is_kept(self, manifest: Manifest, name: str) -> bool:
        return self.keep_remote and name in manifest.prompt_origins


def program_prompts() -> dict[str, StoredPrompt]:
    """Return the program's own texts."""
    return {name: StoredPrompt(program_text(name), prompt(name).used) for name in NAMES}


def _origin(pin: PromptVersion) -> PromptOrigin | None:
    if pin.source == "local" or pin.version is None:
        return None
    return PromptOrigin(name=pin.remote_name, version=pin.version, label=pin.label or "")
