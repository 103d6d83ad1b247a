"""Prompts from Langfuse, by name and label."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import httpx
from langfuse.api import AsyncLangfuseAPI, NotFoundError, Prompt_Chat
from langfuse.api.core import ApiError, RequestOptions
from pydantic import ValidationError

from starling.core.errors import PromptSourceUnavailableError
from starling.core.prompts import OfferedPrompt, Offers, RefusedPrompt
from starling.infra.tracing.destination import Destination

_ALL_SECONDS: Final = 6.0  # for the texts of all prompts
_ONE_SECONDS: Final = 3.0
_OTHER_ANSWER: Final = "its answer is none of Langfuse's API"
_ONCE: Final = RequestOptions(max_retries=0)


@dataclass(frozen=True, slots=True)
class LangfusePrompts:
    """Fetches the texts that have a label. `names` are the names that prompts have in Langfuse, by our own."""

    source: Destination
    label: str
    names: Mapping[str, str]

    async def offers(self) -> Offers:
        """Return the texts that Langfuse has of all prompts. Raises PromptSourceUnavailableError."""
        try:
            async with asyncio.timeout(_ALL_SECONDS), httpx.AsyncClient(timeout=_ONE_SECONDS) as client:
                headers = dict(self.source.headers)
                api = AsyncLangfuseAPI(base_url=self.source.langfuse, headers=headers, httpx_client=client)
                found = await asyncio.gather(*(self._offer(api, remote) for remote in self.names.values()))
        except httpx.TimeoutException:
            raise self._unavailable(f"it didn't answer within {_ONE_SECONDS:g} s") from None
        except TimeoutError:
            raise self._unavailable(f"it didn't answer within {_ALL_SECONDS:g} s") from None
        except ApiError as error:
            raise self._unavailable(_refusal(error.status_code)) from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise self._unavailable(f"it can't be reached: {str(error).rstrip('.') or type(error).__name__}") from None
        except (ValidationError, ValueError, TypeError, AttributeError):  # its client checks little of an answer
            raise self._unavailable(_OTHER_ANSWER) from None
        return {name: offer for name, offer in zip(self.names, found, strict=True) if offer is not None}

    async def _offer(self, api: AsyncLangfuseAPI, remote: str) -> OfferedPrompt | RefusedPrompt | None:
        try:
            found = await api.prompts.get(quote(remote, safe=""), label=self.label, request_options=_ONCE)
        except NotFoundError:
            return None
        where = f"Langfuse's `{remote}`, version {found.version},"
        text = _joined(found) if isinstance(found, Prompt_Chat) else found.prompt
        if text is None:
            return RefusedPrompt(f"{where} is a chat, and not of one system and one user message.")
        return OfferedPrompt(text, "langfuse", found.version, self.label, remote)

    def _unavailable(self, reason: str) -> PromptSourceUnavailableError:
        return PromptSourceUnavailableError(f"Langfuse at {self.source.langfuse.rpartition('@')[2]}", reason)


def _refusal(status: int | None) -> str:
    """Return what an answer without a prompt says."""
    match status:
        case 401 | 403:
            return f"it refuses the keys (HTTP {status})"
        case 200:
            return _OTHER_ANSWER
        case _:
            return f"it answered with HTTP {status}"


def _joined(chat: Prompt_Chat) -> str | None:
    """Return a chat of a system message and maybe one of the user as one text, None for any other."""
    told = [(getattr(one, "role", ""), getattr(one, "content", "")) for one in chat.prompt]
    match told:
        case [("system", system)]:
            return system
        case [("system", system), ("user", user)] if "\n---\n" not in f"\n{user}\n":
            return f"{system}\n---\n{user}"
        case _:
            return None
