"""The path of a call, wired from its stages."""

from mcp_gateway.path.approval import Approval
from mcp_gateway.path.argument_check import SchemaCheck
from mcp_gateway.path.authorization import Authorization
from mcp_gateway.path.dispatch import Dispatch
from mcp_gateway.path.kill_switch import KillSwitch
from mcp_gateway.path.ledger import LedgerStage
from mcp_gateway.path.pin_check import PinCheck
from mcp_gateway.path.reconciliation import Reconciliation
from mcp_gateway.path.recorder import Recorder, Simulation
from mcp_gateway.path.size_limit import SizeLimit
from mcp_gateway.path.stage import Stage
from mcp_gateway.path.timeout import Timeout
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.schemas.validation import Validators
from mcp_gateway.sessions.pool import SessionPool
from starling.core.artifacts import ArtifactStore
from starling.core.settings.schema import Limits
from starling.core.tool_calls import ApprovalPolicy
from starling.core.tools import Halts


def build_path(
    directory: Directory,
    sessions: SessionPool,
    limits: Limits,
    halts: Halts,
    artifacts: ArtifactStore,
    approval: ApprovalPolicy,
) -> Stage:
    """Wire the path, innermost stage first."""
    validators = Validators()
    path: Stage = Dispatch(directory, sessions, validators, halts)
    path = Timeout(directory, limits.tool_call_seconds, path)
    path = SizeLimit(limits.tool_result_chars, artifacts, path)
    path = LedgerStage(Reconciliation(directory, KillSwitch(halts, SchemaCheck(validators, path))), path)
    simulation = SizeLimit(limits.tool_result_chars, artifacts, Simulation(validators))
    path = SchemaCheck(validators, Recorder(simulation, Approval(directory, path, approval)))
    return Authorization(KillSwitch(halts, PinCheck(directory, path)))
