"""Sessions with servers, and what is done on them: listing and calling tools. Imports MCP's SDK."""

from collections.abc import Callable
from functools import partial

from mcp_gateway.configuration.servers import ServerConfig
from mcp_gateway.gateway import GatewayParts
from mcp_gateway.path.approval import CallApproval
from mcp_gateway.path.attempts import Retry, Timeout
from mcp_gateway.path.authorization import Authorization, KillSwitch, PinCheck
from mcp_gateway.path.binary_artifacts import BinaryArtifacts
from mcp_gateway.path.call_record import Reconciliation, RecordedCall
from mcp_gateway.path.deduplication import Deduplication
from mcp_gateway.path.dispatch import Dispatch, RequiredContext
from mcp_gateway.path.error_when import ErrorWhen
from mcp_gateway.path.platform_secrets import SecretArguments, SecretResults
from mcp_gateway.path.post_effects import Invalidate, PostEffects
from mcp_gateway.path.repeat_guard import RepeatGuard
from mcp_gateway.path.resource_read import LinkedResources, ResourceRead
from mcp_gateway.path.result_cache import Cached
from mcp_gateway.path.result_size_limit import SizeLimit
from mcp_gateway.path.schema_checks import NarrowedOutput, SchemaCheck
from mcp_gateway.path.stage import Stage
from mcp_gateway.path.trials import Simulation, TrialCalls
from mcp_gateway.registration.approved_tools import LiveReview
from mcp_gateway.registration.discovery import list_once
from mcp_gateway.registration.known_servers import KnownServer
from mcp_gateway.registration.listed_tools import Listed
from mcp_gateway.registration.live_check import LiveCheck
from mcp_gateway.schemas.validation import Validators
from mcp_gateway.sessions.call_queue import CallQueues
from mcp_gateway.sessions.checked_connections import CheckedConnections
from mcp_gateway.sessions.pool import SessionPool


class ServerConnections:
    """The sessions of a gateway, the check of the tools on them, and the path of a call."""

    def __init__(self, parts: GatewayParts, invalidate: Invalidate) -> None:
        checked = CheckedConnections(parts.addresses)
        self.sessions = SessionPool(parts.limits, parts.environment, checked, parts.private, parts.breakers)
        self._live = LiveCheck(LiveReview(parts.observed), parts.limits.server_start_seconds)
        self.path = build_path(parts, self.sessions, self._live, invalidate)

    async def list_server(self, name: str, config: ServerConfig, seconds: float) -> Listed:
        """Start a server, list its tools and stop it, within so many seconds. Raises ServerUnavailableError."""
        return await list_once(self.sessions, name, config, seconds)

    def warm(self, name: str, server: KnownServer) -> None:
        """Begin to open a session and to list its tools. A failure is raised by the first call."""
        if (session := self.sessions.warm(name, server.config)) is not None:
            self._live.begin(session, server)

    async def close(self) -> None:
        """Stop listing and close all sessions and processes."""
        await self._live.stop()
        await self.sessions.close()


async def connect(parts: GatewayParts, invalidate: Invalidate) -> ServerConnections:
    """Return the connections of a gateway. See `mcp_gateway.gateway.Connect`."""
    return ServerConnections(parts, invalidate)


def build_path(parts: GatewayParts, sessions: SessionPool, live: LiveCheck, invalidate: Invalidate) -> Stage:
    """Wire the path of a call, innermost stage first. A tool that reconciles is asked without cache and effects."""
    directory, halts, artifacts, limits = parts.directory, parts.halts, parts.artifacts, parts.limits
    validators = Validators()
    timeout = partial(Timeout, directory, parts.breakers, CallQueues(), limits)
    sent: Stage = Dispatch(directory, sessions, validators, halts, live)
    sent = Retry(directory, parts.breakers, sent)
    sent = RequiredContext(directory, sent)
    sent = NarrowedOutput(directory, validators, ErrorWhen(directory, sent))
    sent = timeout(sent)
    sent = SecretResults(directory, sent)
    path: Stage = PostEffects(directory, invalidate, live.relist, sent)
    path = Cached(directory, parts.cache, path)
    path = SizeLimit(limits.tool_result_chars, artifacts, BinaryArtifacts(artifacts, path))
    question: Stage = SizeLimit(limits.tool_result_chars, artifacts, BinaryArtifacts(artifacts, sent))
    question = KillSwitch(halts, SchemaCheck(directory, validators, question))
    path = RecordedCall(Reconciliation(directory, question), path)
    path = Deduplication(directory, parts.repository.claims, artifacts, path)
    simulation = SizeLimit(limits.tool_result_chars, artifacts, Simulation(validators))
    path = TrialCalls(directory, simulation, RepeatGuard(CallApproval(directory, path, parts.approval), path))
    path = SchemaCheck(directory, validators, path)
    path = LinkedResources(_reading(parts, sessions, timeout), path)
    return Authorization(KillSwitch(halts, PinCheck(directory, SecretArguments(directory, path))))


def _reading(parts: GatewayParts, sessions: SessionPool, timeout: Callable[[Stage], Stage]) -> Stage:
    """Wire the path of a read of a resource. It leaves no row in the ledger, as other reads."""
    path: Stage = ResourceRead(parts.directory, sessions, parts.halts)
    path = timeout(Retry(parts.directory, parts.breakers, path))
    path = SecretResults(parts.directory, path)
    path = SizeLimit(parts.limits.tool_result_chars, parts.artifacts, BinaryArtifacts(parts.artifacts, path))
    return CallApproval(parts.directory, path, parts.approval)
