"""Star specs: the pure data that a star of agents is built from, with a content hash."""

from functools import cached_property
from typing import Final

from pydantic import BaseModel, ConfigDict

from starling.core.agents import Persona, RuntimeName
from starling.core.json import digest
from starling.core.llm import ModelRole
from starling.core.principal import Grant
from starling.core.tool_calls import MemberApproval, ReviewPolicy

DEEPEST: Final = 3
"""How many stars of teams may be inside one another, below the main star."""


class _Part(BaseModel):
    # What a later version added is kept, so that its stars have the same hash here.
    model_config = ConfigDict(frozen=True, extra="allow")


class StarLimits(_Part):
    """What one call of a team may use, beside what its run has left; None where only the run limits it.

    `seconds` of time, `iterations` decisions of its supervisor, `tokens` of models.
    """

    seconds: float | None = None
    iterations: int | None = None
    tokens: int | None = None


class Member(_Part):
    """An agent of a team: bound to one `server`, or a `team` of its own, or a writer without either.

    `tools` are the full names of those that it may call, fixed when the team was compiled. `reflect` says which of its
    results are reviewed; with `approval` `effects`, a person approves each of its calls that may change something.
    """

    name: str
    persona: Persona
    server: str | None = None
    tools: tuple[str, ...] = ()
    team: "StarSpec | None" = None
    runtime: RuntimeName = "crewai"
    role: ModelRole = ModelRole.REASONING
    reflect: ReviewPolicy = "always"
    approval: MemberApproval = "policy"


class StarSpec(_Part):
    """A star: what its supervisor is told, its members and limits. The main star's members are those of its epoch.

    `name` is that of the team, empty for the main star.
    """

    name: str = ""
    purpose: str = ""
    instructions: str = ""
    members: tuple[Member, ...] = ()
    limits: StarLimits = StarLimits()

    @cached_property
    def hash(self) -> str:
        """Digest of the whole star, with the stars inside it."""
        return digest(self.model_dump(mode="json"))

    @property
    def tools(self) -> tuple[str, ...]:
        """Full names of all tools that it may call, at any depth, without duplicates."""
        own = (tool for member in self.members for tool in (member.team.tools if member.team else member.tools))
        return tuple(dict.fromkeys(own))

    def limited(self, grant: Grant | None) -> "StarSpec":
        """Return the star with only those tools, at any depth, that are granted. Without a grant, all are."""
        if grant is None:
            return self
        return self.model_copy(update={"members": tuple(_limited(member, grant) for member in self.members)})

    @property
    def depth(self) -> int:
        """How many stars are inside one another: 1 for a team without teams."""
        return 1 + max((member.team.depth for member in self.members if member.team), default=0)


def _limited(member: Member, grant: Grant) -> Member:
    tools = tuple(tool for tool in member.tools if grant.permits(tool.partition(".")[0], tool))
    return member.model_copy(update={"tools": tools, "team": member.team and member.team.limited(grant)})


MAIN_STAR: Final = StarSpec()
