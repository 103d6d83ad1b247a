"""Effects of a server of an `mcpServers` file: the file is written anew, unless it has comments."""

import difflib
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcp_gateway.configuration.effect_suggestions import EffectSuggestion, with_effects_of_tools
from mcp_gateway.configuration.json_comments import without_comments
from mcp_gateway.configuration.servers import McpConfig, ServerConfig, parse_config
from mcp_gateway.registration.repository import ServerRow
from starling.app.cli.terminal.output import diagnostics, write
from starling.core.errors import ConfigurationError, ConflictError

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class FileEdit:
    """An edit of an `mcpServers` file, in bytes, and what the file says after it."""

    file: Path
    before: bytes
    after: bytes
    config: McpConfig

    @classmethod
    def of(cls, file: Path, name: str, stored: ServerConfig, effects: Sequence[EffectSuggestion]) -> "FileEdit":
        """Return the edit that adds effects to a server.

        Raises ConfigurationError where the file has comments, or not the server as it is stored.
        """
        try:
            before = file.read_bytes()
            text = before.decode("utf-8-sig")
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{file} can't be read: {error}.") from None
        found = parse_config(text, str(file)).get(name)
        if found is None or found.hash != stored.hash:
            raise ConfigurationError(f"{file} has no server {name} with the configuration that is in use.")
        if without_comments(text) != text:
            raise ConfigurationError(f"{file} has comments, or commas that JSON does not allow, which would be lost.")
        document = json.loads(text)
        server = document["mcpServers"][name]
        server["x-starling"] = with_effects_of_tools(server.get("x-starling"), effects)
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        return cls(file, before, _BOM * before.startswith(_BOM) + text.encode(), parse_config(text, str(file)))

    def changes_only(self, name: str, rows: Iterable[ServerRow]) -> bool:
        """Return whether the other servers of the file are the stored servers of files, unchanged."""
        stored = {row.name: row.config_hash for row in rows if row.source == "file" and row.name != name}
        return stored == {other: config.hash for other, config in self.config.items() if other != name}

    def show(self) -> None:
        """Print the changed lines on stderr."""
        before, after = (text.decode("utf-8-sig").splitlines() for text in (self.before, self.after))
        for line in difflib.unified_diff(before, after, str(self.file), str(self.file), lineterm=""):
            style = {"+": "green", "-": "red"}.get(line[:1])
            write(diagnostics(), f"{line}\n", style)

    def write(self) -> None:
        """Replace the file in one step; it keeps its permissions. Raises ConflictError where it has changed since."""
        file = self.file.resolve()
        if file.read_bytes() != self.before:
            raise ConflictError(f"{self.file} was changed meanwhile.", "Nothing was written; run the command again.")
        draft = file.with_name(f".{file.name}.{os.getpid()}.new")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
                opened.write(self.after)
                opened.flush()
                os.fsync(opened.fileno())
            shutil.copymode(file, draft)
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)
