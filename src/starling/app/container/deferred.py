"""The imports that a platform defers until it is ready, or until something needs them earlier: LangGraph and numpy.

Each is made in a thread: whoever needs it waits, and the event loop goes on.
"""

import asyncio
import warnings
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

import starling.infra.deferred
from mcp_gateway.gateway import Connections, GatewayParts
from mcp_gateway.path.post_effects import Invalidate, Relist
from starling.core.runs import RunResult
from starling.core.settings.schema import Settings
from starling.infra.postgres.engine import Engine
from starling.infra.postgres.runs.acceptance import Claim

if TYPE_CHECKING:
    from brain.execution.run_executor import Brain
    from brain.registry.cards import AgentCard
    from brain.registry.prompt_versions import PromptSelection
    from brain.registry.service import Registry
    from brain.retrieval.search import AgentRanker, AgentSearch, Ranking
    from starling.app.container.catalogs import Catalogs
    from starling.app.container.retrieval import Retrieval


def connections():
    """Return the module of sessions with servers. Imports MCP's SDK."""
    from mcp_gateway import connections

    return connections


async def connect(parts: GatewayParts, invalidate: Invalidate, relist: Relist) -> Connections:
    """Return the connections of a gateway, once their imports are done."""
    return await (await asyncio.to_thread(connections)).connect(parts, invalidate, relist)


def execution():
    """Return the module that builds what executes and ends runs. Imports LangGraph, a third of a start."""
    from starling.app.container import execution

    return execution


def isolated_run():
    """Return the module of processes that execute one run. Imports what opens services, like this process."""
    from starling.app.container import isolated_run

    return isolated_run


def retrieval():
    """Return the module that builds what finds agents and skills. Imports numpy."""
    from starling.app.container import retrieval

    return retrieval


def catalogs():
    """Return the module that builds what shows and changes agents, teams and skills. Imports the architect."""
    from starling.app.container import catalogs

    return catalogs


def file_watcher():
    """Return the module that reloads the `mcpServers` file when it changes. Imports watchfiles."""
    from starling.app.registry import file_watcher

    return file_watcher


class Deferred[T]:
    """A value that is built, with its imports, in a thread by the first call; later calls return the same."""

    def __init__(self, build: Callable[[], T]) -> None:
        self.built: T | None = None
        self._build = build
        self._building = asyncio.Lock()

    async def __call__(self) -> T:
        async with self._building:
            if self.built is None:
                self.built = await asyncio.to_thread(self._build)
            return self.built


class DeferredRetrieval:
    """One Retrieval for all who use it, built in whichever thread asks first."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._settings = settings
        self._engine = engine
        self._built: Retrieval | None = None
        self._building = Lock()

    def get(self) -> "Retrieval":
        """Return it. Raises ConfigurationError."""
        with self._building:
            if self._built is None:
                self._built = retrieval().build_retrieval(self._settings, self._engine)
            return self._built

    async def close(self) -> None:
        """Stop making vectors and close connections to embedders."""
        if self._built is not None:
            await self._built.agent_finder.close()


class DeferredCatalogs:
    """The catalogs of agents, teams and skills, built in whichever thread asks first; arguments as CatalogParts'."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        rosters: "Registry",
        ranker: "DeferredAgentRanker",
        retrieval: DeferredRetrieval,
        prompts: "PromptSelection",
    ) -> None:
        self._parts = (engine, settings, rosters, ranker, retrieval, prompts)
        self._built: Catalogs | None = None
        self._building = Lock()

    def get(self) -> "Catalogs":
        """Return them."""
        with self._building:
            if self._built is None:
                module = catalogs()
                self._built = module.build_catalogs(module.CatalogParts(*self._parts))
            return self._built


class DeferredAgentRanker:
    """Ranks agents by a ranker that is built for the first search."""

    def __init__(self, build: "Callable[[], AgentRanker]") -> None:
        self._ranker = Deferred(build)

    async def rank(self, search: "AgentSearch", text: str, limit: int) -> "Ranking":
        return await (await self._ranker()).rank(search, text, limit)

    async def rank_tools(self, search: "AgentSearch", card: "AgentCard", text: str, limit: int) -> list[str]:
        return await (await self._ranker()).rank_tools(search, card, text, limit)

    async def close(self) -> None:
        if self._ranker.built:
            await self._ranker.built.close()


class DeferredBrain:
    """Executes runs by a Brain that is built by `load`, or by the first run."""

    def __init__(self, build: "Callable[[], Brain]") -> None:
        self._brain = Deferred(lambda: _with_all_imports(build))
        self._drained = False

    async def load(self) -> None:
        """Import what executes runs, opens sessions and asks models, in a thread."""
        await self.loaded()

    def drain(self) -> None:
        """Let every execution end after its current step, from now on."""
        self._drained = True
        if self._brain.built is not None:
            self._brain.built.drain()

    async def park(self, claim: Claim) -> RunResult:
        """End a claimed run that crashed its workers too often. Raises what Brain.park raises."""
        return await (await self.loaded()).park(claim)

    async def execute(self, claim: Claim) -> RunResult | None:
        """Execute a claimed run. Returns and raises what Brain.execute does."""
        return await (await self.loaded()).execute(claim)

    async def loaded(self) -> "Brain":
        """Return the brain once its imports are done."""
        # requests filters this warning out itself, which is lost if the thread restores filters meanwhile
        if self._brain.built is None:
            warnings.filterwarnings("ignore", message="SOCKS support in urllib3")
        brain = await self._brain()
        if self._drained:
            brain.drain()
        return brain


def _with_all_imports[T](build: Callable[[], T]) -> T:
    """Import what a run needs beside its graph, too: else its first call would import it in the event loop."""
    connections()
    starling.infra.deferred.import_models()
    return build()
