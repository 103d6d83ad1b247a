"""Starling's settings of a server and its tools, under the key `x-starling`."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from mcp_gateway.schemas.validation import schema_fault
from starling.core.closed_document import ClosedDocument
from starling.core.governance import stricter_approval
from starling.core.tool_calls import ApprovalPolicy, Effect, ReviewPolicy

_DAY: Final = 86_400.0
_CACHED_WITH_CONTEXT: Final = "cache_ttl can't be used with requires_context: the result may depend on the run"
_CACHED_EFFECT: Final = "cache_ttl needs the effect read: every call of any other tool has to be made"
_DEDUPLICATED_READ: Final = "dedup_ttl is for tools that may change something; for the effect read there is cache_ttl"
_POINTER: Final = re.compile(r"(?:/(?:[^/~]|~[01])*)*")  # JSON pointer, RFC 6901
_REMOVED_TESTS: Final = frozenset({"matches", "exists"})
REMOVED_TESTS: Final = "its `error_when` has `matches` or `exists`, which were removed: use `equals` or `text_contains`"
type PinPolicy = Literal["strict", "text", "follow"]
"""What may change of a tool without an approval: nothing, descriptions, or everything that doesn't instruct."""


class ErrorCondition(ClosedDocument):
    """A condition under which a normal result of a tool is an error.

    Either the value at a JSON pointer of the structured content `equals` this value, or, without a pointer, the text of
    the result contains a text.
    """

    pointer: str | None = None
    equals: Any = None
    text_contains: Annotated[str, Field(min_length=1, max_length=1_000)] | None = None

    @model_validator(mode="after")
    def _one_test(self) -> Self:
        tests = {"pointer", "equals"} if self.pointer is not None else {"text_contains"}
        if self.model_fields_set != tests or (self.pointer is None and self.text_contains is None):
            raise ValueError("must have either a pointer and equals, or text_contains")
        if self.pointer is not None and not _POINTER.fullmatch(self.pointer):
            raise ValueError("its pointer must be a JSON pointer such as /status or /items/0/error")
        return self

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


class InvalidateCache(ClosedDocument):
    """A post-effect: forget the kept results of a `read` tool of the same server."""

    invalidate: Annotated[str, Field(min_length=1)]


class EmitEvent(ClosedDocument):
    """A post-effect: put an event with this name into the run's stream."""

    event: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]{0,63}$")]


def _post_effect(value: Any) -> Any:
    """Return the post-effect that a value stands for. Raises ValueError."""
    match value:
        case "relist" | InvalidateCache() | EmitEvent():
            return value
        case {"invalidate": _}:
            return InvalidateCache.model_validate(value)
        case {"event": _}:
            return EmitEvent.model_validate(value)
        case _:
            raise ValueError('must be "relist", {"invalidate": TOOL} or {"event": NAME}')


PostEffect = Annotated[InvalidateCache | EmitEvent | Literal["relist"], BeforeValidator(_post_effect)]
"""What follows a call that succeeded; `relist` lists the tools of the server again."""


class ToolOptions(ClosedDocument):
    """The admin's settings of one tool. `side_effect_free` is an alias for the effect `read`.

    `description`, `input_schema` and `output_schema` are what agents see instead of the server's own; a value has to
    fit both schemas. `timeout`, `cache_ttl` and `dedup_ttl` are seconds. `reconcile` names a tool of the same server
    that returns the outcome of a call whose answer was lost. `reflect` is the review policy of results of this tool.
    """

    description: Annotated[str, Field(min_length=1, max_length=20_000)] | None = None
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    timeout: Annotated[float, Field(gt=0)] | None = None
    approval: ApprovalPolicy | None = None
    effect: Effect | None = None
    side_effect_free: bool = False
    reconcile: Annotated[str, Field(min_length=1)] | None = None
    reflect: ReviewPolicy | None = None
    cache_ttl: Annotated[float, Field(gt=0, le=_DAY)] | None = None
    dedup_ttl: Annotated[float, Field(gt=0, le=30 * _DAY)] | None = None
    requires_context: bool = False
    post_effects: tuple[PostEffect, ...] = Field(default=(), max_length=20)
    error_when: tuple[ErrorCondition, ...] = Field(default=(), max_length=20)
    secrets: tuple[str, ...] = ()  # names of known secrets that arguments may contain

    @property
    def own_effect(self) -> Effect | None:
        """The effect that is set for the tool itself, None where that of its server holds."""
        return Effect.READ if self.side_effect_free else self.effect

    @property
    def invalidated(self) -> frozenset[str]:
        """The tools whose kept results a call of this one makes obsolete."""
        return frozenset(effect.invalidate for effect in self.post_effects if isinstance(effect, InvalidateCache))

    @property
    def named_tools(self) -> frozenset[str]:
        """The tools of the server that the settings name."""
        return self.invalidated if self.reconcile is None else self.invalidated | {self.reconcile}

    @field_validator("error_when", mode="before")
    @classmethod
    def _without_removed_tests(cls, value: object) -> object:
        """Drop conditions that only settings stored by earlier versions have; `removed_tests` finds them."""
        if not isinstance(value, list):
            return value
        return [one for one in cast("list[object]", value) if not _has_removed_test(one)]

    @field_validator("reflect", mode="before")
    @classmethod
    def _flag(cls, value: object) -> object:
        if isinstance(value, bool):
            return "always" if value else None
        return value

    @field_validator("input_schema", "output_schema")
    @classmethod
    def _is_schema(cls, value: dict[str, Any] | None, info: ValidationInfo) -> dict[str, Any] | None:
        if value is not None and (fault := schema_fault(value)):
            raise ValueError(f"{info.field_name} {fault}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.side_effect_free and self.effect not in (None, Effect.READ):
            raise ValueError(f"side_effect_free contradicts effect {self.effect!r}")
        if self.cache_ttl is not None and self.requires_context:
            raise ValueError(_CACHED_WITH_CONTEXT)
        return self

    def fault(self, server_effect: Effect) -> str:
        """Return why the settings can't work with the effect that the tool has, nothing where they can."""
        is_read = (self.own_effect or server_effect) is Effect.READ
        if self.cache_ttl is not None and not is_read:
            return _CACHED_EFFECT
        return _DEDUPLICATED_READ if self.dedup_ttl is not None and is_read else ""


NO_OPTIONS: Final = ToolOptions()


class ServerOptions(ClosedDocument):
    """The part under `x-starling`. `effect` applies to every tool that `tools` doesn't name."""

    description: str = ""
    effect: Effect = Effect.UNSAFE
    tools: dict[str, ToolOptions] = Field(default={})
    timeout: Annotated[float, Field(gt=0)] | None = None  # seconds for one call
    max_sessions: Annotated[int, Field(ge=1)] = 1
    max_calls: Annotated[int, Field(ge=1)] | None = None  # at once, of one process; others wait
    tenants: tuple[str, ...] = ()  # that may use it; empty: all
    plain: tuple[str, ...] = ()  # variables in `env`, `headers` and `url` whose values are no secrets
    approval: ApprovalPolicy | None = None  # overridden by `tools`; without it, the setting `approval` holds
    pins: PinPolicy = "strict"
    roots: tuple[Annotated[str, Field(pattern="^file:///")], ...] = ()  # told to a server that asks; else it is refused
    reflect: ReviewPolicy | None = None  # of its tools' results; overridden by `tools`

    @field_validator("tools")
    @classmethod
    def _another_tool_reconciles(cls, tools: dict[str, ToolOptions]) -> dict[str, ToolOptions]:
        if itself := [name for name, options in tools.items() if options.reconcile == name]:
            raise ValueError(f"{itself[0]} can't reconcile itself: `reconcile` has to name another tool")
        return tools

    @model_validator(mode="after")
    def _fits_the_effects(self) -> Self:
        for name, options in self.tools.items():
            if fault := options.fault(self.effect):
                raise ValueError(f"{name}: {fault}")
        return self

    @property
    def named_tools(self) -> frozenset[str]:
        """The tools that have settings, and those that settings name."""
        return frozenset(self.tools).union(*(options.named_tools for options in self.tools.values()))

    def tool(self, name: str) -> ToolOptions:
        """Return the settings of a tool, of one that has none the defaults."""
        return self.tools.get(name, NO_OPTIONS)

    def effect_of(self, tool: str) -> Effect:
        """Return the effect class of a tool. A server's own annotations are ignored."""
        return self.tool(tool).own_effect or self.effect

    def is_declared(self, tool: str) -> bool:
        """Whether an admin set the effect of a tool, of its own or of all of the server."""
        return self.tool(tool).own_effect is not None or "effect" in self.model_fields_set

    def timeout_of(self, tool: str) -> float | None:
        """Return the seconds that one call of a tool may take, None where the platform's limit holds."""
        return self.tool(tool).timeout or self.timeout

    def approval_of(
        self, tool: str, default: ApprovalPolicy, least: ApprovalPolicy = "never"
    ) -> Literal["unsafe", "always"] | None:
        """Return why a call of a tool needs an approval, or None.

        `default` holds for a server without a policy; `least` where it is stricter than the policy.
        """
        policy = stricter_approval(self.tool(tool).approval or self.approval or default, least)
        if policy == "unsafe":
            return "unsafe" if self.effect_of(tool) is Effect.UNSAFE else None
        return "always" if policy == "always" else None

    def with_tool_settings(self, settings: Mapping[str, Mapping[str, Any]]) -> tuple["ServerOptions", tuple[str, ...]]:
        """Return the options with settings of tools that win over those here, and what of both contradicts.

        Of two that contradict, neither a cache nor a deduplication is used: the call is made.
        """
        document = self.model_dump(mode="json", exclude_unset=True)  # an `unsafe` that was written stays
        tools: dict[str, Any] = dict(document.get("tools", {}))
        faults: list[str] = []
        for name, own in settings.items():
            tools[name], fault = _merged(tools.get(name, {}), own, self.effect)
            faults += [f"{name}: {fault}"] if fault else []
        return ServerOptions.model_validate({**document, "tools": tools}), tuple(faults)


def removed_tests(server: Any) -> list[str]:
    """Return the tools of a server's valid document with conditions in `error_when` that earlier versions knew."""
    options: Mapping[str, Any] = server.get("x-starling") or {}
    tools: Mapping[str, Mapping[str, Any]] = options.get("tools") or {}
    return [tool for tool, settings in tools.items() if any(map(_has_removed_test, settings.get("error_when") or ()))]


def _has_removed_test(condition: object) -> bool:
    return isinstance(condition, Mapping) and not _REMOVED_TESTS.isdisjoint(cast("Mapping[str, object]", condition))


def _merged(below: Mapping[str, Any], above: Mapping[str, Any], effect: Effect) -> tuple[dict[str, Any], str]:
    """Return the settings of one tool, `above` before `below`, and what contradicts."""
    if "effect" in above or above.get("side_effect_free"):
        below = {name: value for name, value in below.items() if name not in ("effect", "side_effect_free")}
    both = {**below, **above}
    unkept = {name: value for name, value in both.items() if name not in ("cache_ttl", "dedup_ttl")}
    if both.get("cache_ttl") is not None and both.get("requires_context"):
        return unkept, _CACHED_WITH_CONTEXT
    fault = ToolOptions.model_validate(both).fault(effect)
    return (unkept, fault) if fault else (both, "")
