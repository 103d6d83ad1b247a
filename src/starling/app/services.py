"""What routes, workers and commands call: one service for each subject."""

from dataclasses import dataclass

from brain.retrieval.agent_finder import AgentFinder
from brain.skills.memory import SkillMemory
from starling.app.access.kill_switches import SwitchTargets
from starling.app.openai.chat_runs import ChatRuns
from starling.app.registry.agents import AgentService
from starling.app.registry.documents import ServerDocuments
from starling.app.registry.governance import GovernanceDocuments
from starling.app.registry.prompts import PromptCatalog
from starling.app.registry.service import RegistryService
from starling.app.runs.acceptance import RunAcceptance
from starling.app.runs.cancellation import RunCancellation
from starling.app.runs.forks import RunForks
from starling.app.runs.interrupts import InterruptService
from starling.app.runs.records import RunRecords
from starling.app.skills.service import SkillService
from starling.app.skills.skill_import import SkillImport
from starling.app.storage import Storage
from starling.app.teams.builds import BuildService
from starling.app.teams.publication import TeamPublication
from starling.app.teams.service import TeamService
from starling.app.threads import ThreadService
from starling.app.tools import ToolExecutor
from starling.core.embeddings import Embedder
from starling.core.tracing import Tracer
from starling.infra.postgres.runs.acceptance import RunRepository
from starling.infra.postgres.runs.documents import RunDocumentRepository
from starling.infra.postgres.runs.feedback import FeedbackRepository
from starling.infra.postgres.runs.interrupts import InterruptRepository
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.ledger import LedgerReader
from starling.infra.postgres.runs.listing import RunListing
from starling.infra.postgres.runs.reader import RunReader
from starling.infra.queue.run_queue import RunQueue


@dataclass(frozen=True, slots=True)
class RunServices:
    """What accepts, reads, answers and cancels runs."""

    acceptance: RunAcceptance
    answering: InterruptService
    cancellation: RunCancellation
    documents: RunDocumentRepository
    feedback: FeedbackRepository
    interrupts: InterruptRepository
    leases: Leases
    ledger: LedgerReader
    listing: RunListing
    queue: RunQueue
    reader: RunReader
    records: RunRecords
    repository: RunRepository


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What agents and skills are found with; the vectors of both are made by one embedder."""

    embedder: Embedder | None
    agents: AgentFinder
    skills: SkillMemory


@dataclass(frozen=True, slots=True)
class Services:
    """One service for each subject. `storage` has what the process needs to be ready."""

    storage: Storage
    runs: RunServices
    agents: AgentService
    builds: BuildService
    chats: ChatRuns
    forks: RunForks
    governance: GovernanceDocuments
    prompt_catalog: PromptCatalog
    registry: RegistryService
    retrieval: Retrieval
    server_documents: ServerDocuments
    skill_import: SkillImport
    skills: SkillService
    switch_targets: SwitchTargets
    team_store: TeamPublication
    teams: TeamService
    threads: ThreadService
    tools: ToolExecutor
    tracer: Tracer
