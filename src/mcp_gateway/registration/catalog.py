"""The registered servers and their tools: listed if new or changed, else read from the database."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Final

from mcp_gateway.configuration.servers import EXECUTION_SERVICE, McpConfig, ServerConfig, server_of
from mcp_gateway.registration.approved_tools import ApprovedTools, Offer
from mcp_gateway.registration.listed_tools import Listed, definition_hashes
from mcp_gateway.registration.listing_schedule import AT_ONCE, start_seconds, wait_for_most
from mcp_gateway.registration.pins import Occasion
from mcp_gateway.registration.repository import ListedServer, ServerRepository, ServerRow
from mcp_gateway.registration.server_rows import (
    Answer,
    degraded,
    effective,
    kept_listing,
    known_row,
    listing_of,
    occasion_of,
    ready,
    source_of,
    with_tool_settings,
)
from starling.core.errors import (
    ConfigurationError,
    DatabaseUnavailableError,
    ServerUnavailableError,
)
from starling.core.look_alike_names import skeleton
from starling.core.settings.schema import Limits
from starling.core.tools import ServerListing, ServerSource

_REPLACED: Final[Mapping[ServerSource, frozenset[ServerSource]]] = {
    "file": frozenset({"file"}),
    "api": frozenset({"file", "api"}),
    "host": frozenset(),
}
_WAIT: Final = "Wait for it; if it stays so, start it by hand to see what takes it so long."
_RELOAD: Final = "A reload lists it; so does a plan on its machine."
_UNUSED: Final = "EXECUTION_SERVICE_URL is not used: a server %s was added; `starling server remove %s` removes it."
_log = logging.getLogger(__name__)

type Refresh = Callable[[], Awaitable[tuple[ServerListing, ...]]]
type ListServer = Callable[[str, ServerConfig, float], Awaitable[Listed]]
"""Starts a server, lists its tools and stops it, within so many seconds. Raises ServerUnavailableError."""


@dataclass(frozen=True, slots=True)
class ServerProbe:
    """The tools of a server now, and the difference to the stored ones."""

    seconds: float
    tools: tuple[str, ...]
    new: tuple[str, ...]
    gone: tuple[str, ...]
    changed: tuple[str, ...]
    left_out: tuple[str, ...]


GRACE_SECONDS: Final = 3.0  # further wait for slow servers at start-up


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """Servers to remove and to store; valid while the stored servers are `known`."""

    known: tuple[ServerRow, ...]
    removed: tuple[str, ...]
    listed: tuple[ListedServer, ...]

    def rows(self) -> list[ServerRow]:
        """Return the servers after the change, by name."""
        kept = {row.name: row for row in self.known if row.name not in self.removed}
        kept |= {server.row.name: server.row for server in self.listed}
        return [kept[name] for name in sorted(kept)]


class Catalog:
    """Keeps the tables `servers` and `tools` equal to the configuration.

    `start_seconds` bounds each server from its start to the end of its list; up to 16 are listed concurrently.
    After each change, `refresh` makes it known to calls, and returns what is known then. `of_settings` are servers that
    count as in each document that doesn't name them itself.
    """

    def __init__(
        self,
        repository: ServerRepository,
        list_server: ListServer,
        limits: Limits,
        refresh: Refresh,
        of_settings: McpConfig | None = None,
    ) -> None:
        self._of_settings = of_settings or {}
        self._repository = repository
        self._refresh = refresh
        self._approved = ApprovedTools(repository)
        self._list = list_server
        self._limits = limits
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._late: set[asyncio.Task[None]] = set()

    async def sync(
        self, config: McpConfig, *, starting: bool = False, relist: bool = False, source: ServerSource = "file"
    ) -> tuple[ServerListing, ...]:
        """Replace the servers that came from files by these.

        Lists new, changed and degraded servers, with `relist` all; a server that can't be listed becomes degraded and
        doesn't affect the others. While `starting`, servers that are slower than the grace period are degraded until
        they answer, or stay as they were listed before; then they are stored. A document over HTTP (`source`) also
        replaces what came that way before. Raises ConfigurationError if a name belongs to a server that was added on
        the host.
        """
        while True:
            change = await self.plan(config, starting=starting, relist=relist, source=source)
            if await self._repository.change(change.removed, change.listed, change.known):
                return await self._refresh()

    async def republish(self) -> tuple[ServerListing, ...]:
        """Have an epoch made of the servers as they are, and those of the settings as these are now, at a start."""
        rows = await self._repository.servers()
        former = {row.name for row in rows if row.name == EXECUTION_SERVICE and row.source == "file"}
        if former or self._of_settings:
            kept = {row.name: server_of(row.config) for row in rows if row.source == "file" and row.name not in former}
            return await self.sync(kept, starting=True)
        await self._repository.change((), ())
        return await self._refresh()

    async def plan(
        self,
        config: McpConfig,
        *,
        starting: bool = False,
        relist: bool = False,
        source: ServerSource = "file",
        unlisted: Mapping[str, str] | None = None,
    ) -> CatalogChange:
        """Return the change that `sync` would make; `unlisted` has the reasons why servers are not to be listed.

        Raises as `sync` does.
        """
        unlisted, rows = unlisted or {}, await self._repository.servers()
        known = {row.name: row for row in rows}
        added = {row.name for row in rows if row.source == "host"}
        if taken := sorted(config.keys() & added):
            raise ConfigurationError(
                f"The names {', '.join(taken)} belong to servers that were added with `starling server add`.",
                "Rename them in the file, or remove the others.",
            )
        if self._of_settings.keys() & added:
            _log.warning(_UNUSED, EXECUTION_SERVICE, EXECUTION_SERVICE)
        own = self._of_settings.keys() - config.keys() - added
        config = {name: self._of_settings[name] for name in own} | config
        hashes = {name: server.hash for name, server in config.items()}
        unchanged = {row.name for row in rows if row.state == "ready" and row.config_hash == hashes.get(row.name)}
        sources: dict[str, ServerSource] = {
            name: "file" if name in own else source_of(name, server, known, source) for name, server in config.items()
        }
        asked = {
            name: server_of(server.document, sources[name])
            for name, server in config.items()
            if name not in unlisted and (relist or name not in unchanged)
        }
        kept: dict[str, ServerRow | None] = {}
        if starting:
            answers = await self._answers_at_start(asked, known, others=len(asked) < len(config))
            kept = {one.row.name: kept_listing(one, known.get(one.row.name)) for one in answers}
        else:
            answers = await asyncio.gather(*(self._ask(name, one, known.get(name)) for name, one in asked.items()))
        answers = [one for one in answers if kept.get(one.row.name) is None]
        answers += [
            degraded(name, config[name], ServerUnavailableError(name, reason, _RELOAD))
            for name, reason in unlisted.items()
        ]
        answers = [replace(one, row=replace(one.row, source=sources[one.row.name])) for one in answers]
        unasked = config.keys() - asked.keys() if source == "file" else ()
        taken = [name for name in unasked if name in known and known[name].source == "api"]  # they are in a file now
        listed = await self._decided(answers, known)
        listed += [ListedServer(replace(known[name], source=source), {}) for name in taken]
        listed += [ListedServer(row, {}) for name, row in kept.items() if row is not None and row != known[name]]
        gone = sorted({row.name for row in rows if row.source in _REPLACED[source]} - config.keys())
        return CatalogChange(tuple(rows), tuple(gone), tuple(sorted(listed, key=lambda server: server.row.name)))

    async def add(
        self, name: str, config: ServerConfig, listed: Listed | None = None, source: ServerSource = "host"
    ) -> tuple[ServerListing, ...]:
        """List one server, unless `listed` is given, and store it; no reload of a file removes it.

        Raises ConfigurationError if the name is in use, ServerUnavailableError if it can't be listed.
        """
        config = server_of(config.document, source)
        _check_name_free(name, await self._repository.servers())
        answer = listed or await self._list(name, config, start_seconds(config, self._limits))
        occasion = Occasion(config.options.pins, source, first=True)
        offer = Answer(ready(name, config, answer, source), config, answer), occasion
        stored = False
        while not stored:
            _check_name_free(name, known := await self._repository.servers())
            stored = await self._repository.change((), await self._approved.of([offer]), known)
        return await self._refresh()

    async def reconfigure(self, name: str, config: ServerConfig) -> tuple[ServerListing, ...]:
        """Replace the configuration of a server that no file names; its tools stay as listed.

        Raises NotFoundError, ConfigurationError for a server of a file, whose configuration is in that file.
        """

        def changed(row: ServerRow) -> ServerRow:
            if row.source == "file":
                raise ConfigurationError(f"The server {name!r} comes from a file.", "Change it there and reload it.")
            return replace(row, config=config.document, config_hash=config.hash)

        return await self._replace(name, changed)

    async def configure_tool(self, name: str, tool: str, document: Mapping[str, Any]) -> tuple[ServerListing, ...]:
        """Replace the settings of one tool that win over its server's configuration; an empty document removes them.

        Raises NotFoundError for a server or tool that isn't there, InvalidRequestError with what is wrong.
        """
        return await self._replace(name, lambda row: with_tool_settings(row, tool, document))

    async def _replace(self, name: str, changed: Callable[[ServerRow], ServerRow]) -> tuple[ServerListing, ...]:
        stored = False
        while not stored:
            known = await self._repository.servers()
            row = changed(known_row(name, known))
            stored = await self._repository.change((), [ListedServer(row, {})], known)
        return await self._refresh()

    async def remove(self, name: str) -> tuple[ServerListing, ...]:
        """Remove one server. Raises NotFoundError."""
        await self._row(name)
        await self._repository.change([name], (), forget=True)
        return await self._refresh()

    async def try_out(self, name: str) -> ServerProbe:
        """Start and list a known server again, without a change. Raises NotFoundError, ServerUnavailableError."""
        row = await self._row(name)
        begun = perf_counter()
        config = server_of(row.config, row.source)
        listed = await self._list(name, config, start_seconds(config, self._limits, row))
        pins = definition_hashes(listed.tools)
        return ServerProbe(
            seconds=perf_counter() - begun,
            tools=tuple(sorted(pins)),
            new=tuple(sorted(pins.keys() - row.tools.keys())),
            gone=tuple(sorted(row.tools.keys() - pins.keys())),
            changed=tuple(sorted(tool for tool in pins.keys() & row.tools.keys() if pins[tool] != row.tools[tool])),
            left_out=listed.left_out,
        )

    async def stop(self) -> None:
        """Stop waiting for servers that have not been listed yet."""
        late = list(self._late)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def load(self) -> tuple[McpConfig, tuple[ServerListing, ...]]:
        """Return every known server's configuration, references unresolved, and what it listed last."""
        rows, definitions = await self._repository.servers_and_tools()
        config = {row.name: effective(row) for row in rows}
        return config, tuple(listing_of(row, config[row.name], definitions) for row in rows)

    async def _row(self, name: str) -> ServerRow:
        return known_row(name, await self._repository.servers())

    async def _decided(self, answers: Iterable[Answer], known: Mapping[str, ServerRow]) -> list[ListedServer]:
        """Return what is to be stored for answers, with the stored settings of tools: a file doesn't change them."""
        offers: list[Offer] = []
        for answer in answers:
            before = known.get(answer.row.name)
            row = answer.row if before is None else replace(answer.row, tool_settings=before.tool_settings)
            offers.append((replace(answer, row=row), occasion_of(answer, before)))
        return await self._approved.of(offers)

    async def _answers_at_start(
        self, asked: McpConfig, known: Mapping[str, ServerRow], *, others: bool
    ) -> list[Answer]:
        loop = asyncio.get_running_loop()
        listings = {name: loop.create_task(self._ask(name, one, known.get(name))) for name, one in asked.items()}
        first = GRACE_SECONDS if others else self._limits.server_start_seconds + GRACE_SECONDS
        try:
            await wait_for_most(listings.values(), lambda one: one.row.state == "ready", GRACE_SECONDS, first)
        except BaseException:
            for task in listings.values():
                task.cancel()
            raise
        answers = {name: task.result() for name, task in listings.items() if task.done()}
        for name in listings.keys() - answers.keys():
            seconds = start_seconds(asked[name], self._limits, known.get(name))
            reason = f"it has not listed its tools yet; it has {seconds:g} s from its start."
            answers[name] = degraded(name, asked[name], ServerUnavailableError(name, reason, _WAIT))
            if (kept := kept_listing(answers[name], known.get(name))) is not None:
                _log.warning("MCP server %s changed: %s Its last listing is used until then.", name, reason)
            storing = loop.create_task(self._store_late(listings[name], kept))
            self._late.add(storing)
            storing.add_done_callback(self._late.discard)
        return list(answers.values())

    async def _store_late(self, listings: asyncio.Task[Answer], kept: ServerRow | None) -> None:
        answer = await listings
        if answer.listed is None and kept is not None:
            return
        hashes = {answer.row.config_hash, *(() if kept is None else (kept.config_hash,))}
        name = answer.row.name
        try:
            stored = False
            while not stored:
                known = await self._repository.servers()
                row = next((row for row in known if row.name == name and row.config_hash in hashes), None)
                if row is None:
                    return  # removed or changed meanwhile
                listed = await self._decided([answer], {name: row})
                stored = await self._repository.change((), listed, known)
            await self._refresh()
        except DatabaseUnavailableError as error:
            _log.info("the tools of MCP server %s can't be stored: %s", name, error)

    async def _ask(self, name: str, config: ServerConfig, row: ServerRow | None) -> Answer:
        try:
            async with self._slots:
                listed = await self._list(name, config, start_seconds(config, self._limits, row))
        except ServerUnavailableError as error:
            _log.warning("%s", error)
            return degraded(name, config, error)
        return Answer(ready(name, config, listed, "file"), config, listed)


def _check_name_free(name: str, known: Iterable[ServerRow]) -> None:
    if alike := next((row.name for row in known if skeleton(row.name) == skeleton(name)), ""):
        seen = "" if alike == name else f", and {name!r} looks like it"
        raise ConfigurationError(
            f"There is a server {alike!r} already{seen}.", "Remove it first, or take another name."
        )
