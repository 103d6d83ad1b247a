"""Reloads the `mcpServers` file when it changes, if the settings say so."""

import logging
from pathlib import Path

from mcp_gateway.configuration.servers import parse_config
from starling.app.registry.service import RegistryService
from starling.core.errors import DatabaseUnavailableError, StarlingError
from starling.infra.postgres.audit import Actor

_LOOK_MILLISECONDS = 1_000  # poll, for file systems without notifications
_log = logging.getLogger(__name__)


class FileWatcher:
    """Remembers the last content, first that of now: the start-up reads the file after this.

    The folder is watched: editors and Kubernetes replace files.
    """

    def __init__(self, file: Path, registry: RegistryService) -> None:
        self._file = file
        self._registry = registry
        self._text = self._read()

    async def follow(self) -> None:
        """Reload at each change, until cancelled. An unusable file changes nothing and is logged once.

        While Postgres is away the reload is repeated at the next look.
        """
        from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType] - it may use trio, which isn't here

        folder = self._file.absolute().parent
        async for _ in awatch(folder, recursive=False, rust_timeout=_LOOK_MILLISECONDS, yield_on_timeout=True):
            text = self._read()
            if text == self._text:
                continue
            try:
                report = await self._registry.reload(parse_config(text, str(self._file)), Actor.local("file"))
            except DatabaseUnavailableError as error:
                _log.debug("%s changed but can't be stored yet: %s", self._file, error)
                continue
            except StarlingError as error:
                _log.warning("%s changed but can't be used: %s", self._file, error)
            else:
                _log.info("%s changed; epoch %d is active", self._file, report.epoch)
            self._text = text

    def _read(self) -> str:
        """Return the file's text, or a text that is not a valid document."""
        try:
            return self._file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            return f"unreadable: {error}"
