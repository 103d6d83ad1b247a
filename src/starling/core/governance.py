"""What mode and channel allow a request: the table of an admin, and the port that decides on one request."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import not_
from typing import Annotated, Any, Final, Literal, Protocol, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from starling.core.closed_document import ClosedDocument
from starling.core.llm import ModelRole
from starling.core.principal import Grant
from starling.core.runs import Channel, Mode
from starling.core.tool_calls import ApprovalPolicy, Effect, ReviewPolicy

_APPROVALS: Final[Sequence[ApprovalPolicy]] = ("never", "unsafe", "always")  # the strictest last
_REVIEWS: Final[Sequence[ReviewPolicy]] = ("never", "risky", "always")


def stricter_approval(first: ApprovalPolicy, second: ApprovalPolicy) -> ApprovalPolicy:
    """Return the policy that asks for more approvals."""
    return _APPROVALS[max(_APPROVALS.index(first), _APPROVALS.index(second))]


def stricter_review(first: ReviewPolicy, second: ReviewPolicy) -> ReviewPolicy:
    """Return the policy that reviews more."""
    return _REVIEWS[max(_REVIEWS.index(first), _REVIEWS.index(second))]


def _grant_of(tools: Sequence[str]) -> Grant:
    """Return the grant of names `server.tool` and `server.*`."""
    whole = frozenset(name.removesuffix(".*") for name in tools if name.endswith(".*"))
    return Grant(whole, frozenset(name for name in tools if not name.endswith(".*")))


def _both_tools(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    both = _grant_of(first).intersection(_grant_of(second))
    return _ordered((*(f"{server}.*" for server in both.servers), *both.tools))


def _ordered[T: str](values: Sequence[T]) -> tuple[T, ...]:
    return tuple(sorted(set(values)))


def _both(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    return tuple(value for value in first if value in second)


def _second(_: object, second: object) -> object:
    return second


def _member(description: str, **bounds: Any) -> Any:
    return Field(default=None, exclude_if=lambda value: value is None, description=description, **bounds)


type _Tool = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+\.\S+$", max_length=300)]
type _Agent = Annotated[str, StringConstraints(pattern=r"^([a-z0-9][A-Za-z0-9_.-]{0,127})?$")]
type _Names[T: str] = Annotated[tuple[T, ...], Field(max_length=500), AfterValidator(_ordered)]


class GovernanceRow(ClosedDocument):
    """What requests of a mode, a channel or both are allowed. A member that is left out sets no bound."""

    roles: Annotated[_Names[ModelRole], Field(min_length=1)] | None = _member("Roles of models that may be asked.")
    default_role: ModelRole | None = _member("The role that is asked in place of one that may not be.")
    tools: _Names[_Tool] | None = _member("Tools that may be called, `server.tool` or `server.*`.")
    effects: _Names[Effect] | None = _member("Effects that called tools may have.")
    iterations: int | None = _member("Turns of an agent with tools, in one attempt.", ge=1, le=50)
    iteration_factor: int | None = _member("How many times `limits.tool_iterations` an agent gets.", ge=1, le=10)
    max_tokens: int | None = _member("Tokens of an answer of a model.", ge=16)
    temperature: float | None = _member("Temperature of supervisors.", ge=0, le=2)
    seconds: float | None = _member("Time limit of a run.", gt=0, le=86_400)
    approval: ApprovalPolicy | None = _member("Calls that need a person, where the policy of a server asks for fewer.")
    review: ReviewPolicy | None = _member("Results of agents that are reviewed, where their own policy asks for fewer.")
    direct_agent: _Agent | None = _member(
        "The agent that gets whole requests that name none, without a supervisor; empty: none."
    )

    def joined(self, other: Self) -> Self:
        """Return what both rows allow, maybe no role; `other` wins where default roles or direct agents differ."""
        mine, theirs = self.members(), other.members()
        both = {name: _NARROWER[name](mine[name], theirs[name]) for name in mine.keys() & theirs.keys()}
        return self.model_copy(update=theirs | both)

    def narrowed(self, other: Self) -> Self:
        """Return the row joined with one that must not allow more; without `review` agents are mostly reviewed."""
        loosens = self.review is None and other.review != "always"
        return self.joined(other.model_copy(update={"review": None}) if loosens else other)

    def replaced(self, other: Self) -> Self:
        """Return the row with the members that `other` has."""
        return self.model_copy(update=other.members())

    def granted(self, grant: Grant | None) -> Grant | None:
        """Return what a grant leaves of the tools of the row; None is everything."""
        return grant if self.tools is None else _grant_of(self.tools).intersection(grant)

    def members(self) -> dict[str, Any]:
        """Return the members that set a bound."""
        return {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}


_NARROWER: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "roles": _both,
    "default_role": _second,
    "tools": _both_tools,
    "effects": _both,
    **dict.fromkeys(("iterations", "iteration_factor", "max_tokens", "temperature", "seconds"), min),
    "approval": stricter_approval,
    "review": stricter_review,
    "direct_agent": _second,
}
_OPEN: Final = GovernanceRow()
CELLS: Final = tuple((mode, channel) for mode in Mode for channel in Channel)

_CELL: Final = f"^({'|'.join(Mode)})/({'|'.join(Channel)})$"


class GovernanceRows(ClosedDocument):
    """Rows by mode and by channel, of which both hold, and by cell, whose members hold in place of theirs."""

    modes: dict[Mode, GovernanceRow] = Field(default={}, exclude_if=not_)
    channels: dict[Channel, GovernanceRow] = Field(default={}, exclude_if=not_)
    cells: dict[Annotated[str, StringConstraints(pattern=_CELL)], GovernanceRow] = Field(default={}, exclude_if=not_)

    def row_of(self, mode: Mode, channel: Channel) -> GovernanceRow:
        """Return the row of a cell."""
        both = self.modes.get(mode, _OPEN).joined(self.channels.get(channel, _OPEN))
        return both.replaced(self.cells.get(f"{mode}/{channel}", _OPEN))

    def places(self) -> Iterator[tuple[str, GovernanceRow]]:
        """Yield each row with its place."""
        for part in ("modes", "channels", "cells"):
            rows: Mapping[str, GovernanceRow] = getattr(self, part)
            yield from ((f"{part}.{name}", row) for name, row in rows.items())


DEFAULTS: Final = GovernanceRows(
    modes={
        Mode.CONSERVATIVE: GovernanceRow(
            roles=(ModelRole.REASONING, ModelRole.ROUTER), effects=(Effect.READ,), iteration_factor=1, temperature=0.3
        ),
        Mode.MODERATE: GovernanceRow(iteration_factor=1, temperature=0.3),
        Mode.EXPLORATORY: GovernanceRow(iteration_factor=2, temperature=0.3),
    },
    channels={Channel.CODE_TASK: GovernanceRow(default_role=ModelRole.CODING, direct_agent="coder")},
)
"""What holds where a table says nothing else of a member of a row."""


class GovernanceTable(GovernanceRows, defer_build=False):
    """The table as an admin writes it: members that it leaves out have their defaults.

    `tenants` are rows of single tenants, which hold besides those of all.
    """

    tenants: dict[Annotated[str, StringConstraints(min_length=1, max_length=200)], GovernanceRows] = Field(
        default={}, exclude_if=not_
    )

    @model_validator(mode="after")
    def _roles_left(self) -> Self:
        with_roles = [name for name, rows in self.tenants.items() if any(row.roles for _, row in rows.places())]
        for tenant in ("", *with_roles):
            for mode, channel in CELLS:
                if self.row(mode, channel, tenant).roles == ():
                    of = f" for the tenant {tenant}" if tenant else ""
                    raise ValueError(f"no role is left in {mode}/{channel}{of}: its rows have none in common")
        return self

    def row(self, mode: Mode, channel: Channel, tenant: str = "") -> GovernanceRow:
        """Return what a tenant's requests of a cell are allowed; without a tenant, those of all."""
        whole = self._with_defaults.row_of(mode, channel)
        own = self.tenants.get(tenant)
        return whole.narrowed(own.row_of(mode, channel)) if own else whole

    def written(self) -> dict[str, Any]:
        """Return the members of all rows as they are written, by place."""
        rows = [*self.places()]
        rows += [(f"tenants.{name}.{at}", row) for name, own in self.tenants.items() for at, row in own.places()]
        return {f"{place}.{name}": value for place, row in rows for name, value in row.members().items()}

    @cached_property
    def _with_defaults(self) -> GovernanceRows:
        modes = {mode: DEFAULTS.modes.get(mode, _OPEN).replaced(self.modes.get(mode, _OPEN)) for mode in Mode}
        channels = {one: DEFAULTS.channels.get(one, _OPEN).replaced(self.channels.get(one, _OPEN)) for one in Channel}
        return GovernanceRows(modes=modes, channels=channels, cells=self.cells)

    def ineffective(self) -> Iterator[str]:
        """Yield what rows of tenants would allow that no row of all tenants does: it is not allowed."""
        for tenant, rows in self.tenants.items():
            for place, row in rows.places():
                cells = [cell for cell in CELLS if place.partition(".")[2] in (*cell, "/".join(cell))]
                for name, value in row.members().items():
                    unset = "always" if name == "review" else None  # without a policy agents are mostly reviewed
                    tops = [self.row(*cell).members().get(name, unset) for cell in cells]
                    if all(top is not None and _NARROWER[name](top, value) != value for top in tops):
                        at = f"tenants.{tenant}.{place}.{name}"
                        yield f"{at} allows more than the rows of all tenants, whose bound holds"


class GovernanceDecision(ClosedDocument):
    """What one request is allowed, before limits of the platform and the caller.

    `source` is what decided: the `table`; the `service`, within the table; or the `fallback`, the row of CONSERVATIVE,
    where the service gave no valid answer, which `warning` explains.
    """

    source: Literal["table", "service", "fallback"]
    row: GovernanceRow
    warning: str = Field(default="", exclude_if=not_)


class Governance(Protocol):
    """Decides what requests are allowed."""

    async def evaluate_request(
        self, session_id: str, channel: Channel, mode: Mode, user_message: str
    ) -> GovernanceDecision:
        """Return what a request is allowed. Raises nothing: without an answer the decision is the fallback."""
        ...


@dataclass(frozen=True, slots=True)
class TableGovernance:
    """Decides by the table alone, for the requests of one tenant."""

    table: GovernanceTable
    tenant: str

    async def evaluate_request(
        self, session_id: str, channel: Channel, mode: Mode, user_message: str
    ) -> GovernanceDecision:
        del session_id, user_message
        return GovernanceDecision(source="table", row=self.table.row(mode, channel, self.tenant))
