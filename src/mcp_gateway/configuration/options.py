"""Starling's settings of a server and its tools, under the key `x-starling`."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from starling.core.tool_calls import ApprovalPolicy, Effect


class ToolOptions(BaseModel):
    """The admin's settings of one tool. `side_effect_free` is an alias for the effect `read`.

    `reconcile` names a tool of the same server that returns the outcome of a call whose answer was lost.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    effect: Effect | None = None
    side_effect_free: bool = False
    approval: ApprovalPolicy | None = None
    reconcile: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_effect(self) -> "ToolOptions":
        if self.side_effect_free and self.effect not in (None, Effect.READ):
            raise ValueError(f"side_effect_free contradicts effect {self.effect!r}")
        return self


class ServerOptions(BaseModel):
    """The part under `x-starling`. `effect` applies to every tool that `tools` doesn't name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: str = ""
    effect: Effect = Effect.UNSAFE
    tools: dict[str, ToolOptions] = {}
    timeout: Annotated[float, Field(gt=0)] | None = None  # seconds for one call
    max_sessions: Annotated[int, Field(ge=1)] = 1
    tenants: tuple[str, ...] = ()  # that may use it; empty: all
    approval: ApprovalPolicy | None = None  # overridden by `tools`; without it, the setting `approval` holds

    @field_validator("tools")
    @classmethod
    def _another_tool_reconciles(cls, tools: dict[str, ToolOptions]) -> dict[str, ToolOptions]:
        if itself := [name for name, options in tools.items() if options.reconcile == name]:
            raise ValueError(f"{itself[0]} can't reconcile itself: `reconcile` has to name another tool")
        return tools

    @property
    def named_tools(self) -> frozenset[str]:
        """The tools that have settings, and those named by `reconcile`."""
        return frozenset(self.tools) | {options.reconcile for options in self.tools.values() if options.reconcile}

    def effect_of(self, tool: str) -> Effect:
        """Return the effect class of a tool. A server's own annotations are ignored."""
        options = self.tools.get(tool)
        if options is None:
            return self.effect
        return Effect.READ if options.side_effect_free else options.effect or self.effect

    def approval_of(self, tool: str, default: ApprovalPolicy) -> Literal["unsafe", "always"] | None:
        """Return why a call of a tool needs an approval, or None; `default` holds for a server without a policy."""
        options = self.tools.get(tool)
        policy = (options and options.approval) or self.approval or default
        if policy == "unsafe":
            return "unsafe" if self.effect_of(tool) is Effect.UNSAFE else None
        return "always" if policy == "always" else None
