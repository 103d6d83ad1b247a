"""What a process keeps open of Postgres, and what it needs to be ready."""

from dataclasses import dataclass

from brain.registry.prompt_versions import PromptSelection
from brain.registry.repository import EpochRepository
from brain.registry.service import Registry
from mcp_gateway.registration.repository import ServerRepository
from starling.app.access.keys import KeyService
from starling.app.runs.retention import RetentionService
from starling.app.telemetry.metrics import MetricsExporter
from starling.core.artifacts import ArtifactStore
from starling.infra.postgres.availability import WriteCheck
from starling.infra.postgres.engine import Engine
from starling.infra.postgres.kill_switches import SwitchRepository
from starling.infra.postgres.notifications import NotificationHub
from starling.infra.postgres.runs.broadcast import Broadcast


@dataclass(frozen=True, slots=True)
class Storage:
    """Connections to Postgres and the repositories over them that a start or a command needs.

    `url` is for transactions, `direct_url` past any transaction pooler.
    """

    url: str
    direct_url: str
    engine: Engine
    hub: NotificationHub
    broadcast: Broadcast
    writes: WriteCheck
    artifacts: ArtifactStore
    epochs: EpochRepository
    keys: KeyService
    metrics: MetricsExporter
    prompts: PromptSelection
    retention: RetentionService
    rosters: Registry
    servers: ServerRepository
    switches: SwitchRepository
