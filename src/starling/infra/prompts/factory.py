"""The sources of the settings."""

import asyncio
from dataclasses import dataclass

from starling.core.prompts import Offers, PromptSource
from starling.core.settings.schema import Settings
from starling.infra.prompts.folder import PromptFolder


@dataclass(frozen=True, slots=True)
class _Langfuse:
    """Langfuse's prompts; its package is imported in a thread when it is first asked."""

    settings: Settings

    async def offers(self) -> Offers:
        return await (await asyncio.to_thread(self._source)).offers()

    def _source(self) -> PromptSource:
        from starling.infra.prompts.langfuse import LangfusePrompts

        settings = self.settings
        secret = settings.langfuse_secret_key.get_secret_value() if settings.langfuse_secret_key else ""
        return LangfusePrompts(
            settings.langfuse_host.rstrip("/"),
            settings.langfuse_public_key or "",
            secret,
            settings.langfuse_prompt_label,
            settings.langfuse_names,
        )


def local_prompts(settings: Settings) -> PromptFolder:
    """Return the folder of the settings."""
    return PromptFolder(settings.prompts_dir)


def remote_prompts(settings: Settings) -> PromptSource | None:
    """Return Langfuse, if the settings have keys for it and a label of prompts."""
    with_keys = settings.langfuse_public_key and settings.langfuse_secret_key
    return _Langfuse(settings) if with_keys and settings.langfuse_prompt_label else None
