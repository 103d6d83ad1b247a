"""The services of routes and commands that show and change custom agents, teams and skills, and explain runs."""

from dataclasses import dataclass
from functools import partial

from architect.compiler import TeamCompiler
from architect.repository import TeamRepository
from brain.explanation.repository import ExplanationRepository
from brain.registry.prompt_versions import PromptSelection
from brain.registry.repository import AgentRepository, EpochRepository, StarRepository
from brain.registry.service import Registry
from brain.skills.catalog.repository import SkillCatalog
from mcp_gateway.registration.repository import ServerRepository
from starling.app.access.kill_switches import halts_now
from starling.app.container.deferred import Deferred, DeferredAgentRanker, DeferredRetrieval
from starling.app.registry.agents import AgentService
from starling.app.registry.prompts import PromptCatalog
from starling.app.runs.acceptance import RunAcceptance
from starling.app.runs.explanations import RunExplanations
from starling.app.skills.service import SkillService
from starling.app.skills.skill_import import SkillImport
from starling.app.teams.activation import TeamActivation
from starling.app.teams.builds import BuildService
from starling.app.teams.publication import TeamPublication
from starling.app.teams.service import TeamService
from starling.core.settings.schema import Settings
from starling.core.tracing import NOOP_TRACER
from starling.infra.llm.factory import check_model
from starling.infra.postgres.engine import Engine
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.kill_switches import SwitchRepository


@dataclass(frozen=True, slots=True)
class Catalogs:
    """What is known of custom agents, teams and skills, how it is changed, and why runs came to what they came to."""

    agents: AgentService
    prompts: PromptCatalog
    explanations: RunExplanations
    skill_import: SkillImport
    skills: SkillService
    team_store: TeamPublication
    teams: TeamService

    def builds(self, acceptance: RunAcceptance) -> BuildService:
        """Return what accepts builds of teams as runs."""
        return BuildService(acceptance, self.teams.activation)


@dataclass(frozen=True, slots=True)
class CatalogParts:
    """What the catalogs share with other services."""

    engine: Engine
    settings: Settings
    rosters: Registry
    ranker: DeferredAgentRanker
    retrieval: DeferredRetrieval
    prompts: PromptSelection


def build_catalogs(parts: CatalogParts) -> Catalogs:
    """Return the catalogs over an engine."""
    engine, settings, rosters = parts.engine, parts.settings, parts.rosters
    epochs, stars, skills = EpochRepository(engine), StarRepository(engine), SkillCatalog(engine)
    memory = Deferred(lambda: parts.retrieval.get().memory(NOOP_TRACER))
    agents = AgentService(
        epochs,
        AgentRepository(engine),
        ServerRepository(engine),
        rosters,
        parts.ranker,
        partial(check_model, settings=settings),
        partial(halts_now, SwitchRepository(engine)),
    )
    activation = TeamActivation(epochs, TeamRepository(engine), stars, TeamCompiler(), settings.limits)
    return Catalogs(
        agents=agents,
        prompts=PromptCatalog(parts.prompts, parts.prompts.stored, epochs),
        explanations=RunExplanations(ExplanationRepository(engine)),
        skill_import=SkillImport(skills, epochs, memory),
        skills=SkillService(skills, epochs, rosters, memory),
        team_store=TeamPublication(activation, KeyRepository(engine)),
        teams=TeamService(epochs, activation.teams, stars, agents.usable, activation),
    )
