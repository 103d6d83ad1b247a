"""Services that need nothing but the database: for commands, and a part of what the API and workers have."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from brain.registry.custom_agents import CustomAgents
from brain.registry.prompt_versions import PromptSelection
from brain.registry.repository import AgentRepository, EpochRepository, PromptRepository, StarRepository
from brain.registry.service import Registry
from brain.registry.team_cards import TenantTeams
from mcp_gateway.registration.repository import ServerRepository
from mcp_gateway.sessions.isolation import ServerIsolation
from starling.app.access.keys import KeyService
from starling.app.access.switch_targets import SwitchTargets
from starling.app.container.database import find_database
from starling.app.container.deferred import DeferredAgentRanker, DeferredCatalogs, DeferredRetrieval
from starling.app.container.private_files import private_files
from starling.app.registry.documents import ServerDocuments
from starling.app.runs.records import RunRecords
from starling.app.runs.retention import RetentionService
from starling.core.artifacts import ArtifactStore
from starling.core.clock import SystemClock
from starling.core.settings.schema import Settings, environment
from starling.infra.postgres.artifacts import PostgresArtifacts, Quota
from starling.infra.postgres.engine import ConnectionLimits, Engine, open_engine
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.kill_switches import SwitchRepository
from starling.infra.postgres.retention import Retention
from starling.infra.postgres.runs.broadcast import open_broadcast
from starling.infra.postgres.runs.documents import RunDocumentRepository
from starling.infra.postgres.runs.feedback import FeedbackRepository
from starling.infra.postgres.runs.interrupts import InterruptReader
from starling.infra.postgres.runs.ledger import LedgerReader
from starling.infra.postgres.runs.listing import RunListing
from starling.infra.postgres.runs.reader import RunReader
from starling.infra.postgres.schema import check
from starling.infra.prompts.factory import local_prompts, remote_prompts

if TYPE_CHECKING:
    from starling.app.registry.agents import AgentService
    from starling.app.registry.prompts import PromptCatalog
    from starling.app.runs.explanations import RunExplanations
    from starling.app.skills.service import SkillService
    from starling.app.skills.skill_import import SkillImport
    from starling.app.teams.publication import TeamPublication
    from starling.app.teams.service import TeamService

_CONNECTIONS = 2


@dataclass(frozen=True, slots=True)
class AdminServices:
    """What admin commands and routes share."""

    agent_ranker: DeferredAgentRanker
    artifacts: ArtifactStore
    catalogs: DeferredCatalogs
    documents: RunDocumentRepository
    epochs: EpochRepository
    feedback: FeedbackRepository
    interrupts: InterruptReader
    keys: KeyService
    ledger: LedgerReader
    listing: RunListing
    prompts: PromptSelection
    reader: RunReader
    retention: RetentionService
    retrieval: DeferredRetrieval
    rosters: Registry
    server_documents: ServerDocuments
    servers: ServerRepository
    switch_targets: SwitchTargets
    switches: SwitchRepository

    @property
    def agents(self) -> "AgentService":
        return self.catalogs.get().agents

    @property
    def records(self) -> RunRecords:
        return RunRecords(self.listing, self.reader, self.documents)

    @property
    def explanations(self) -> "RunExplanations":
        return self.catalogs.get().explanations

    @property
    def prompt_catalog(self) -> "PromptCatalog":
        return self.catalogs.get().prompts

    @property
    def skill_import(self) -> "SkillImport":
        return self.catalogs.get().skill_import

    @property
    def skills(self) -> "SkillService":
        return self.catalogs.get().skills

    @property
    def team_store(self) -> "TeamPublication":
        return self.catalogs.get().team_store

    @property
    def teams(self) -> "TeamService":
        return self.catalogs.get().teams


@asynccontextmanager
async def open_admin(settings: Settings, *, statement_seconds: float | None = None) -> AsyncGenerator[AdminServices]:
    """Connect to the database of the settings; `statement_seconds` is how long one statement may take.

    Raises DatabaseUnavailableError, DatabaseUnsuitableError.
    """
    database = find_database(settings)
    await check(database.direct_url)
    limits = ConnectionLimits(size=_CONNECTIONS, behind_pooler=database.behind_pooler)
    if statement_seconds is not None:
        limits = replace(limits, statement_seconds=statement_seconds)
    engine = open_engine(database.url, limits)
    try:
        async with open_broadcast(database.direct_url) as broadcast:
            admin = build_admin(engine, RunReader(engine, broadcast), settings)
            yield admin
            await admin.retrieval.close()
    finally:
        await engine.dispose()


def build_admin(engine: Engine, reader: RunReader, settings: Settings) -> AdminServices:
    """Return the services over an engine."""
    epochs, servers = EpochRepository(engine), ServerRepository(engine)
    keys, listing, limits = KeyRepository(engine), RunListing(engine), settings.limits
    rosters = Registry(
        epochs, CustomAgents(AgentRepository(engine)), TenantTeams(StarRepository(engine)), PromptRepository(engine)
    )
    retrieval = DeferredRetrieval(settings, engine)
    ranker = DeferredAgentRanker(lambda: retrieval.get().agent_finder)
    artifacts = PostgresArtifacts(engine, Quota(limits.artifact_bytes, limits.tenant_artifact_bytes))
    prompts = build_prompts(engine, settings)
    interrupts, ledger, feedback = InterruptReader(engine), LedgerReader(engine), FeedbackRepository(engine)
    return AdminServices(
        agent_ranker=ranker,
        artifacts=artifacts,
        catalogs=DeferredCatalogs(engine, settings, rosters, ranker, retrieval, prompts),
        documents=RunDocumentRepository(engine),
        epochs=epochs,
        feedback=feedback,
        interrupts=interrupts,
        keys=KeyService(keys, SystemClock()),
        ledger=ledger,
        listing=listing,
        prompts=prompts,
        reader=reader,
        retention=RetentionService(engine, Retention(engine)),
        retrieval=retrieval,
        rosters=rosters,
        server_documents=ServerDocuments(servers, ServerIsolation(private_files(settings), environment())),
        servers=servers,
        switch_targets=SwitchTargets(epochs, keys, listing),
        switches=SwitchRepository(engine),
    )


def build_prompts(engine: Engine, settings: Settings) -> PromptSelection:
    """Return what chooses among the sources of prompts."""
    sources = local_prompts(settings), remote_prompts(settings)
    return PromptSelection(*sources, PromptRepository(engine), EpochRepository(engine))
