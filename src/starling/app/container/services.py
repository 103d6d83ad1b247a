"""Builds the services over an open storage. Heavy: a platform imports this once it is ready."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from architect.repository import TeamRepository
from brain.lifecycle.finalization import RunFinalizer
from brain.lifecycle.termination import RunTerminator
from brain.registry.repository import AgentRepository, StarRepository
from brain.retrieval.agent_finder import PATIENCE_SECONDS, AgentFinder
from brain.skills.catalog.repository import SkillCatalog
from brain.skills.memory import SkillMemory
from brain.skills.repository import SkillRepository
from brain.state import CALL_VERSION, GRAPH_VERSION
from mcp_gateway.connections import connect
from mcp_gateway.sessions.isolation import ServerIsolation
from starling.app.access.kill_switches import SwitchTargets, halts_now
from starling.app.container.configuration import private_files
from starling.app.container.database import Database
from starling.app.container.servers import build_registry
from starling.app.container.storage import connection_limits, open_storage
from starling.app.openai.chat_runs import ChatRuns
from starling.app.openai.history import ChatHistory
from starling.app.registry.agents import AgentService
from starling.app.registry.documents import ServerDocuments
from starling.app.registry.governance import GovernanceDocuments
from starling.app.registry.prompts import PromptCatalog
from starling.app.runs.acceptance import RunAcceptance
from starling.app.runs.cancellation import RunCancellation
from starling.app.runs.forks import RunForks
from starling.app.runs.interrupts import InterruptService
from starling.app.runs.records import RunRecords
from starling.app.services import Retrieval, RunServices, Services
from starling.app.skills.service import SkillService
from starling.app.skills.skill_import import SkillImport
from starling.app.storage import Storage
from starling.app.teams.activation import TeamActivation
from starling.app.teams.builds import BuildService
from starling.app.teams.publication import TeamPublication
from starling.app.teams.service import TeamService
from starling.app.telemetry.instrumentation import MeasuredTools
from starling.app.threads import ThreadService
from starling.app.tools import ToolExecutor
from starling.core.clock import SystemClock
from starling.core.embeddings import Embedder
from starling.core.secrets.look_alikes import Redaction
from starling.core.settings.schema import Settings, environment
from starling.core.tools import ToolGateway
from starling.core.tracing import NOOP_TRACER
from starling.infra.embeddings.cache import PostgresCachingEmbedder
from starling.infra.embeddings.factory import build_embedder
from starling.infra.llm.model_selection import check_model, configured_models
from starling.infra.postgres.embeddings import EmbeddingRepository
from starling.infra.postgres.engine import Engine, open_engine
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.runs.acceptance import RunRepository
from starling.infra.postgres.runs.chat_answers import ChatAnswerRepository
from starling.infra.postgres.runs.documents import RunDocumentRepository
from starling.infra.postgres.runs.feedback import FeedbackRepository
from starling.infra.postgres.runs.forks import ForkRepository
from starling.infra.postgres.runs.interrupts import InterruptRepository
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.ledger import LedgerReader
from starling.infra.postgres.runs.listing import RunListing
from starling.infra.postgres.runs.reader import RunReader
from starling.infra.postgres.runs.termination import TerminationRepository
from starling.infra.postgres.runs.thread_changes import ThreadChanges
from starling.infra.postgres.runs.threads import ThreadReader
from starling.infra.queue.run_queue import RunQueue
from starling.infra.tracing.factory import open_tracer

_STREAM_CONNECTIONS = 4  # reserved for event streams


@asynccontextmanager
async def open_services(settings: Settings, database: Database) -> AsyncGenerator[Services]:
    """Open a database and the services over it. Raises as `open_storage` does."""
    async with open_storage(settings, database) as storage, services_over(storage, settings) as services:
        yield services


@asynccontextmanager
async def services_over(
    storage: Storage, settings: Settings, gateway: ToolGateway | None = None
) -> AsyncGenerator[Services]:
    """Yield the services over an open storage; `gateway` has the sessions of this process.

    Raises ConfigurationError.
    """
    engine = storage.engine
    async with AsyncExitStack() as stack:
        limits = connection_limits(settings.limits, storage.url, storage.direct_url)
        streams = open_engine(storage.url, replace(limits, size=_STREAM_CONNECTIONS))
        stack.push_async_callback(streams.dispose)
        queue = RunQueue(storage.direct_url, storage.hub, storage.writes.outage)
        reader = RunReader(engine, storage.broadcast, streams=streams)
        stack.push_async_callback(reader.close)
        retrieval = build_retrieval(settings, engine)
        stack.push_async_callback(retrieval.agents.close)
        runs = _runs(storage, settings, queue, reader)
        stars, skills, private = StarRepository(engine), SkillCatalog(engine), private_files(settings)
        activation = TeamActivation(
            storage.epochs, TeamRepository(engine), stars, AgentRepository(engine), settings.limits
        )
        agents = AgentService(
            storage.epochs,
            AgentRepository(engine),
            storage.servers,
            storage.rosters,
            retrieval.agents,
            partial(check_model, settings=settings),
            partial(halts_now, storage.switches),
            TeamRepository(engine).newest,
        )
        threads = ThreadService(ThreadReader(engine), ThreadChanges(engine), runs.documents, SystemClock())
        answers = ChatAnswerRepository(engine)
        prompts = PromptCatalog(storage.prompts, storage.prompts.stored, storage.epochs)
        teams = TeamService(storage.epochs, activation.teams, stars, agents.usable, activation)
        yield Services(
            storage=storage,
            runs=runs,
            agents=agents,
            builds=BuildService(runs.acceptance, activation),
            chats=ChatRuns(
                runs.acceptance,
                agents,
                runs.answering,
                answers,
                runs.cancellation,
                runs.documents,
                ChatHistory(answers, threads),
            ),
            forks=RunForks(
                runs.acceptance,
                ForkRepository(engine),
                storage.epochs,
                partial(configured_models, settings),
                prompts.show,
                teams.stored_star,
            ),
            governance=GovernanceDocuments(storage.epochs),
            prompt_catalog=prompts,
            registry=build_registry(storage, settings, connect),
            retrieval=retrieval,
            server_documents=ServerDocuments(storage.servers, ServerIsolation(private, environment())),
            skill_import=SkillImport(skills, storage.epochs, retrieval.skills),
            skills=SkillService(skills, storage.epochs, storage.rosters, retrieval.skills),
            switch_targets=SwitchTargets(storage.epochs, KeyRepository(engine), runs.listing),
            team_store=TeamPublication(activation, KeyRepository(engine)),
            teams=teams,
            threads=threads,
            tools=ToolExecutor(
                storage.epochs,
                storage.rosters,
                runs.acceptance,
                runs.documents,
                runs.ledger,
                runs.reader,
                MeasuredTools(gateway, storage.metrics.metrics) if gateway else None,
            ),
            tracer=await stack.enter_async_context(open_tracer(settings)),
        )


def build_retrieval(settings: Settings, engine: Engine, patience: float = PATIENCE_SECONDS) -> Retrieval:
    """Return what the embedder of the settings is used for; see AgentFinder. Raises ConfigurationError."""

    def build(model: str) -> Embedder | None:
        return build_embedder(settings.model_copy(update={"embeddings": model}))

    embedder = build_embedder(settings)
    kept = PostgresCachingEmbedder(embedder, EmbeddingRepository(engine), build) if embedder else None
    redact = Redaction.of(settings, environment())  # which configurations of servers refer to
    skills = SkillMemory(SkillRepository(engine), embedder, redact, NOOP_TRACER, SystemClock())
    return Retrieval(embedder, AgentFinder(kept, SystemClock(), patience), skills)


def _runs(storage: Storage, settings: Settings, queue: RunQueue, reader: RunReader) -> RunServices:
    engine, limits = storage.engine, settings.limits
    caps = {"cap": limits.runs_per_tenant, "backlog": limits.queued_runs_per_tenant}
    runs = RunRepository(engine, queue.defer, **caps, local=queue)
    interrupts, listing, feedback = InterruptRepository(engine, runs), RunListing(engine), FeedbackRepository(engine)
    ledger, documents = LedgerReader(engine), RunDocumentRepository(engine)
    # a worker of another process may send their status to Langfuse
    finalizer = RunFinalizer(runs, documents, sends_status=True)
    terminator = RunTerminator(engine, storage.broadcast, reader, finalizer)
    cancellation = RunCancellation(TerminationRepository(engine), terminator)
    return RunServices(
        acceptance=RunAcceptance(runs, reader, interrupts, cancellation, limits),
        answering=InterruptService(interrupts),
        cancellation=cancellation,
        documents=documents,
        feedback=feedback,
        interrupts=interrupts,
        leases=Leases(engine, queue.defer, runs.admit, graph_version=GRAPH_VERSION, newest_version=CALL_VERSION),
        ledger=ledger,
        listing=listing,
        queue=queue,
        reader=reader,
        records=RunRecords(listing, reader, documents),
        repository=runs,
    )
