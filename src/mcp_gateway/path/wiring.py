"""The path of a call, wired from its stages."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from mcp_gateway.path.approval import CallApproval
from mcp_gateway.path.attempts import Retry, Timeout
from mcp_gateway.path.authorization import Authorization, KillSwitch, PinCheck
from mcp_gateway.path.call_record import Reconciliation, RecordedCall
from mcp_gateway.path.deduplication import Claims, Deduplication
from mcp_gateway.path.dispatch import Dispatch, RequiredContext
from mcp_gateway.path.error_when import ErrorWhen
from mcp_gateway.path.platform_secrets import SecretArguments, SecretResults
from mcp_gateway.path.post_effects import Invalidate, PostEffects, Relist
from mcp_gateway.path.repeat_guard import RepeatGuard
from mcp_gateway.path.resource_read import LinkedResources, ResourceRead
from mcp_gateway.path.result_cache import Cached, ResultCache
from mcp_gateway.path.result_size_limit import SizeLimit
from mcp_gateway.path.schema_checks import NarrowedOutput, SchemaCheck
from mcp_gateway.path.stage import Stage
from mcp_gateway.path.trials import Simulation, TrialCalls
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.registration.live_check import LiveCheck
from mcp_gateway.schemas.validation import Validators
from mcp_gateway.sessions.breakers import ServerBreakers
from mcp_gateway.sessions.call_queue import CallQueues
from mcp_gateway.sessions.pool import SessionPool
from starling.core.artifacts import ArtifactStore
from starling.core.settings.schema import Limits
from starling.core.tool_calls import ApprovalPolicy
from starling.core.tools import Halts


@dataclass(frozen=True, slots=True)
class PathPorts:
    """What the stages of the path use."""

    directory: Directory
    sessions: SessionPool
    breakers: ServerBreakers
    live: LiveCheck
    halts: Halts
    artifacts: ArtifactStore
    cache: ResultCache
    claims: Claims
    invalidate: Invalidate
    relist: Relist


def build_path(ports: PathPorts, limits: Limits, approval: ApprovalPolicy) -> Stage:
    """Wire the path, innermost stage first. A tool that reconciles is asked without cache and effects."""
    directory, halts, artifacts = ports.directory, ports.halts, ports.artifacts
    validators = Validators()
    timeout = partial(Timeout, directory, ports.breakers, CallQueues(), limits)
    sent: Stage = Dispatch(directory, ports.sessions, validators, halts, ports.live)
    sent = Retry(directory, ports.breakers, sent)
    sent = RequiredContext(directory, sent)
    sent = NarrowedOutput(directory, validators, ErrorWhen(directory, sent))
    sent = timeout(sent)
    sent = SecretResults(directory, sent)
    path: Stage = PostEffects(directory, ports.invalidate, ports.relist, sent)
    path = Cached(directory, ports.cache, path)
    path = SizeLimit(limits.tool_result_chars, artifacts, path)
    question: Stage = SizeLimit(limits.tool_result_chars, artifacts, sent)
    question = KillSwitch(halts, SchemaCheck(directory, validators, question))
    path = RecordedCall(Reconciliation(directory, question), path)
    path = Deduplication(directory, ports.claims, artifacts, path)
    simulation = SizeLimit(limits.tool_result_chars, artifacts, Simulation(validators))
    path = TrialCalls(directory, simulation, RepeatGuard(CallApproval(directory, path, approval), path))
    path = SchemaCheck(directory, validators, path)
    path = LinkedResources(_reading(ports, limits, timeout, approval), path)
    return Authorization(KillSwitch(halts, PinCheck(directory, SecretArguments(directory, path))))


def _reading(ports: PathPorts, limits: Limits, timeout: Callable[[Stage], Stage], approval: ApprovalPolicy) -> Stage:
    """Wire the path of a read of a resource. It leaves no row in the ledger, as other reads."""
    path: Stage = ResourceRead(ports.directory, ports.sessions, ports.halts)
    path = timeout(Retry(ports.directory, ports.breakers, path))
    path = SecretResults(ports.directory, path)
    path = SizeLimit(limits.tool_result_chars, ports.artifacts, path)
    return CallApproval(ports.directory, path, approval)
