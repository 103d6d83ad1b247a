"""Reloading when the `mcpServers` file changes, where the settings ask for it."""

import contextlib
import logging
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType] - it may use trio, which isn't here

from mcp_gateway.config import parse_config
from starling.app.registry.service import RegistryService
from starling.app.runtime.background_tasks import in_background
from starling.core.errors import DatabaseUnavailableError, StarlingError
from starling.core.settings import Settings
from starling.infra.postgres.audit import Actor

_LOOK_MILLISECONDS = 1_000  # where the file system tells nothing
_log = logging.getLogger(__name__)


def watching(settings: Settings, registry: RegistryService) -> AbstractAsyncContextManager[None]:
    """Reload what changes in the file for as long as the context lasts; do nothing where nobody asked for it.

    What the file says now is known already: whoever reads it at the start does so after this.
    """
    if settings.mcp_config is None or not settings.watch_mcp_config:
        return contextlib.nullcontext()
    return _Watch(settings.mcp_config, registry).following()


class _Watch:
    """The file as it was read last. Its folder is watched: editors and Kubernetes replace files."""

    def __init__(self, file: Path, registry: RegistryService) -> None:
        self._file = file
        self._registry = registry
        self._text = self._read()

    @asynccontextmanager
    async def following(self) -> AsyncGenerator[None]:
        async with in_background(self._follow(), "watch-mcp-config"):
            yield

    async def _follow(self) -> None:
        """Reload at each change, for ever. A file that can't be used changes nothing, and is warned of once.

        What can't be stored now is tried again at the next look.
        """
        folder = self._file.absolute().parent
        async for _ in awatch(folder, recursive=False, rust_timeout=_LOOK_MILLISECONDS, yield_on_timeout=True):
            text = self._read()
            if text != self._text and await self._reloaded(text):
                self._text = text

    async def _reloaded(self, text: str) -> bool:
        """Return whether there is nothing left to do about a text."""
        try:
            report = await self._registry.reload(parse_config(text, str(self._file)), Actor.local("file"))
        except DatabaseUnavailableError as error:
            _log.warning("%s changed and can't be stored yet: %s", self._file, error)
            return False
        except StarlingError as error:
            _log.warning("%s changed and isn't used: %s", self._file, error)
        else:
            _log.info("%s changed; epoch %d is active", self._file, report.epoch)
        return True

    def _read(self) -> str:
        """Return the file's text; what can't be read is no document either."""
        try:
            return self._file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            return f"unreadable: {error}"
