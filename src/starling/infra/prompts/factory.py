"""The sources of the settings."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from starling.core.prompts import LONGEST_PROMPT, PROMPT_NAMES, OfferedPrompt, Offers, PromptSource, RefusedPrompt
from starling.core.settings.schema import Settings
from starling.infra.tracing.destination import langfuse_of


@dataclass(frozen=True, slots=True)
class PromptFolder:
    """A folder of prompts; None where there is none."""

    path: Path | None

    async def offers(self) -> Offers:
        """Return the texts of the folder. A file that can't be read, or that no prompt is named like, is refused."""
        if self.path is None:
            return {}
        return await asyncio.to_thread(_read, self.path)


def _read(folder: Path) -> Offers:
    if not folder.is_dir():
        return {"folder": RefusedPrompt(f"{folder} is not a folder.")}
    return dict(map(_offer, sorted(folder.glob("*.md"))))


def _offer(file: Path) -> tuple[str, OfferedPrompt | RefusedPrompt]:
    """Return the offer of a file under the name of its prompt; under its own name where it belongs to none."""
    if file.stem not in PROMPT_NAMES:
        return file.name, RefusedPrompt(f"{file} belongs to no prompt: there are {', '.join(PROMPT_NAMES)}.")
    try:
        status = file.stat()
        if not S_ISREG(status.st_mode):  # reading a pipe would wait for its writer
            return file.stem, RefusedPrompt(f"{file} is not a regular file.")
        if status.st_size > 4 * LONGEST_PROMPT:
            return file.stem, RefusedPrompt(f"{file} is longer than {LONGEST_PROMPT:,} characters.")
        return file.stem, OfferedPrompt(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        return file.stem, RefusedPrompt(f"{file} can't be read: {error.strerror}.")
    except UnicodeDecodeError as error:
        return file.stem, RefusedPrompt(f"{file} is not UTF-8: {error.reason} at byte {error.start}.")


@dataclass(frozen=True, slots=True)
class _Langfuse:
    """Langfuse's prompts; its package is imported in a thread when it is first asked."""

    settings: Settings

    async def offers(self) -> Offers:
        return await (await asyncio.to_thread(self._source)).offers()

    def _source(self) -> PromptSource:
        destination = langfuse_of(self.settings)  # raises ConfigurationError where the package is missing
        assert destination is not None  # there are keys
        from starling.infra.prompts.langfuse import LangfusePrompts

        return LangfusePrompts(destination, self.settings.langfuse_prompt_label, self.settings.langfuse_names)


def remote_prompts(settings: Settings) -> PromptSource | None:
    """Return Langfuse, if the settings have keys for it and a label of prompts."""
    with_keys = settings.langfuse_public_key and settings.langfuse_secret_key
    return _Langfuse(settings) if with_keys and settings.langfuse_prompt_label else None
