"""Who may still change teams by a build, as it is when the change is made and not when the run was accepted."""

from typing import Final

from brain.registry.cards import ARCHITECT
from starling.app.access.kill_switches import KnownHalts
from starling.core.errors import ForbiddenError
from starling.core.principal import Principal, Scope
from starling.core.teams.build_origin import Approval, BuildOrigin
from starling.infra.postgres.audit import LOCAL
from starling.infra.postgres.engine import EngineConnection
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.kill_switches import halted_within

_NEEDED: Final = frozenset({Scope.RUN, Scope.TEAMS})
_REMEDY: Final = "A key with the scopes `run` and `teams` can repeat the request."


async def check_caller(connection: EngineConnection, keys: KeyRepository, origin: BuildOrigin) -> None:
    """Check that the caller of a build may still change teams, and that no kill switch stops the build.

    Part of the transaction that makes the change. Raises ForbiddenError.
    """
    caller, halts = origin.caller, KnownHalts(await halted_within(connection))
    agents = halts.named("agent", caller.tenant)
    if reason := halts.everything(caller.tenant, caller.key_id) or agents.get(ARCHITECT.name, ""):
        raise ForbiddenError(reason, _REMEDY)
    if not caller.key_id:  # the local user
        return
    key = await keys.find_within(connection, caller.key_id)
    if key is None or key.tenant != caller.tenant or key.state != "active":
        raise ForbiddenError(f"The key {caller.key_id}, which this run was requested with, has expired.", _REMEDY)
    if missing := _NEEDED - key.scopes:
        raise ForbiddenError(f"The key {caller.key_id} lacks the scope {', '.join(sorted(missing))}.", _REMEDY)


async def approver_of(
    connection: EngineConnection, keys: KeyRepository, tenant: str, approval: Approval
) -> Principal | None:
    """Return who approved, with what may be called now; None for one who did not, or may not any more."""
    if not approval.approved:
        return None
    if approval.by == LOCAL:
        return Principal(tenant, "", frozenset(Scope))
    key = await keys.find_within(connection, approval.by)
    if key is None or key.tenant != tenant or key.state != "active" or Scope.ADMIN not in key.scopes:
        return None
    return Principal(tenant, key.id, key.scopes, key.grant)
