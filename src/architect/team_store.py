"""The port of what keeps teams: a build reads the registry through it, and publishes."""

from dataclasses import dataclass
from typing import Literal, Protocol

from architect.repository import TeamVersion
from architect.team_world import TeamWorld
from starling.core.principal import Principal
from starling.core.teams.building import Approval, BuildOrigin
from starling.core.teams.proofs import ProofReport
from starling.core.teams.spec import TeamSpec


@dataclass(frozen=True, slots=True)
class BuiltTeam:
    """A team to store as a version: its spec, what it was built for, and its proof. `activate`: at once, if it may."""

    spec: TeamSpec
    goal: str
    proof: ProofReport
    activate: bool


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """A stored version. `epoch` is the first one that has it, None unless it is active.

    `approval` says why it needs an admin's approval to become active; empty where it is active or can't be.
    """

    name: str
    version: int
    state: Literal["draft", "proven", "unproven", "active"]
    hash: str
    tools: tuple[str, ...]
    epoch: int | None = None
    approval: str = ""


class TeamStore(Protocol):
    """Teams of tenants, as builds use them. What a build stores is stored once, however often it is repeated.

    Every method raises DatabaseUnavailableError; those with an origin raise LeaseLostError where the run is held
    under another fence, RunCancelledError where it is to be cancelled, and ForbiddenError where its caller may not
    change teams any more.
    """

    async def world(self, caller: Principal) -> TeamWorld:
        """Return what teams of the caller can be made of now."""
        ...

    async def version(self, caller: Principal, name: str, number: int | None) -> TeamVersion:
        """Return a version, default the active, else the newest one. Raises NotFoundError."""
        ...

    async def publish(self, origin: BuildOrigin, built: BuiltTeam) -> PublishedVersion:
        """Store a built team as the next version of its team, and activate it in the same transaction if it may be.

        It may where it is proven, its tools are as they were proved, and none of them is unsafe. A new team whose name
        was taken meanwhile gets a suffix. Raises TeamInvalidError, QuotaExceededError.
        """
        ...

    async def add_proof(
        self, origin: BuildOrigin, team: TeamVersion, proof: ProofReport
    ) -> tuple[PublishedVersion, bool]:
        """Store another proof of a version if it counts; return the version, and whether it does.

        It does not where the version's last proof was better, the caller added cases, and is neither who made the
        version nor an admin.
        """
        ...

    async def activate(self, origin: BuildOrigin, published: PublishedVersion, approval: Approval) -> PublishedVersion:
        """Activate a version that an admin approved, with what that admin's key may call too.

        Raises TeamInvalidError, ConflictError.
        """
        ...
