"""Rows of servers: made of answers, with the configuration in effect, and shown as listings. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

from pydantic import ValidationError

from mcp_gateway.configuration.options import REMOVED_TESTS, ServerOptions, ToolOptions, removed_tests
from mcp_gateway.configuration.servers import ServerConfig, server_of
from mcp_gateway.registration.listed_tools import Listed
from mcp_gateway.registration.pins import Occasion
from mcp_gateway.registration.repository import Definitions, ServerRow
from starling.core.errors import InvalidRequestError, NotFoundError, ServerUnavailableError
from starling.core.json import JsonObject, storable, storable_text
from starling.core.tool_calls import Effect
from starling.core.tools import ServerListing, ServerSource, ToolDefinition, hinted_effect, own_name_of
from starling.core.validation_errors import fault_list

type ValueSource = Literal["tool_settings", "configuration", "listing", "default"]
"""Where a value comes from: the settings of the tool that win over all else, the configuration of its server, what the
server listed, or nowhere."""

_LISTED: Final = {"description": "description", "input_schema": "inputSchema", "output_schema": "outputSchema"}
_OF_SERVER: Final = frozenset({"effect", "timeout", "approval", "reflect"})  # that it may set for all its tools
_SYNONYMS: Final = frozenset({"effect", "side_effect_free"})
_DROPPED: Final = frozenset({"cache_ttl", "dedup_ttl"})  # where they contradict the configuration
_UNSAFE: Final = {"effect": Effect.UNSAFE.value}
_REMEDY: Final = (
    "`starling server tool SERVER TOOL` shows which values were set for the tool; `--unset` takes them back."
)


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """A value in effect and its source.

    `tool_settings`: set for the tool by itself, which wins; `configuration`: that of its server; `listing`: the server
    said so; `default`: nothing was set, and for `timeout` and `approval` the settings of the platform hold.
    """

    value: Any
    source: ValueSource


def effective(row: ServerRow) -> ServerConfig:
    """Return the configuration in effect, references unresolved.

    The effect of a server as a whole doesn't hold for tools that its policy alone approved: they are `unsafe`.
    """
    if not row.tool_settings and not row.followed:
        return server_of(row.config, row.source)
    options, _ = _merged(row)
    document: Mapping[str, Any] = row.config
    written = options.model_dump(mode="json", exclude_unset=True)
    return server_of({**document, "x-starling": written}, row.source)


def row_faults(row: ServerRow) -> tuple[str, str]:
    """Return what is wrong with a server that can be used or not, and what to do about it; empty where nothing is.

    That is what was found when it was listed, and what contradicts or is ignored in its configuration and the settings
    of its tools.
    """
    faults = [(row.error, row.remedy)]
    if contradictions := _merged(row)[1] if row.tool_settings else ():
        faults.append((f"Settings of its tools contradict its configuration: {'; '.join(contradictions)}.", _REMEDY))
    if ignored := removed_tests(row.config) + removed_tests({"x-starling": {"tools": row.tool_settings}}):
        error = f"Conditions of these tools are ignored: {', '.join(ignored)}."
        faults.append((error, "Use `equals` or `text_contains` in `error_when`: `matches` and `exists` were removed."))
    return " ".join(filter(None, (error for error, _ in faults))), " ".join(filter(None, (one for _, one in faults)))


def tool_values(row: ServerRow, tool: str, definition: JsonObject) -> dict[str, EffectiveValue]:
    """Return each setting of a tool with its value in effect and where that comes from.

    Where `timeout` and `approval` have no value, the platform's settings hold.
    """
    below, options = server_of(row.config).options, effective(row).options
    kept, written = set(row.tool_settings.get(tool, {})), below.tool(tool).model_fields_set
    values = options.tool(tool).model_dump(mode="json") | {
        "effect": options.effect_of(tool).value,
        "timeout": options.timeout_of(tool),
        "approval": options.tool(tool).approval or options.approval,
        "reflect": options.tool(tool).reflect or options.reflect,
    }
    found: dict[str, EffectiveValue] = {}
    for name, value in values.items():
        same = _SYNONYMS if name == "effect" else {name}
        if same & kept and (value is not None or name not in _DROPPED):
            found[name] = EffectiveValue(value, "tool_settings")
        elif same & written or (name in _OF_SERVER and name in below.model_fields_set):
            found[name] = EffectiveValue(value, "configuration")
        elif name in _LISTED:
            found[name] = EffectiveValue(definition.get(_LISTED[name]), "listing")
        else:
            found[name] = EffectiveValue(value, "default")
    return found


def known_row(name: str, rows: Sequence[ServerRow]) -> ServerRow:
    """Return the server with this name. Raises NotFoundError."""
    if found := next((row for row in rows if row.name == name), None):
        return found
    raise NotFoundError("server", name, f"Known are: {', '.join(row.name for row in rows) or 'none'}.")


def with_tool_settings(row: ServerRow, tool: str, document: Mapping[str, Any]) -> ServerRow:
    """Return a server whose tool has these settings, and no others of those that win over its configuration.

    Raises NotFoundError where it has no such tool, InvalidRequestError with what is wrong.
    """
    if tool not in row.tools and tool not in row.tool_settings:
        raise NotFoundError("tool", f"{row.name}.{tool}", f"Known are: {', '.join(sorted(row.tools)) or 'none'}.")
    settings = {name: kept for name, kept in row.tool_settings.items() if name != tool}
    if own := _stored(row, tool, document):
        settings[tool] = own
    changed = replace(row, tool_settings=settings)
    options, contradictions = _merged(changed)
    wrong = [fault for fault in contradictions if fault.startswith(f"{tool}: ")]
    if missing := sorted(options.tool(tool).named_tools - row.tools.keys()):
        wrong.append(f"{tool}: it names tools that the server doesn't have: {', '.join(missing)}")
    if wrong:
        raise InvalidRequestError(f"The settings can't be used: {'; '.join(wrong)}.", "Nothing was changed.")
    return changed


def _stored(row: ServerRow, tool: str, document: Mapping[str, Any]) -> JsonObject:
    """Return settings as they are stored: checked, without nulls. Raises InvalidRequestError."""
    try:
        options = ToolOptions.model_validate(document)
        if removed_tests({"x-starling": {"tools": {tool: document}}}):
            raise InvalidRequestError(f"The settings of {row.name}.{tool} aren't right: {REMOVED_TESTS}.")
    except ValidationError as error:
        text = f"The settings of {row.name}.{tool} aren't right: {fault_list(error.errors())}."
        raise InvalidRequestError(text, "Nothing was changed.") from None
    if options.reconcile == tool:
        raise InvalidRequestError(f"{tool} can't reconcile itself: `reconcile` has to name another tool.")
    written = options.model_dump(mode="json", include=set(options.model_fields_set))
    kept = {name: value for name, value in written.items() if value is not None}
    if storable(kept) != kept:
        raise InvalidRequestError(
            "A text in the settings has a NUL or half a surrogate pair, or a number is too large."
        )
    return kept


def _merged(row: ServerRow) -> tuple[ServerOptions, tuple[str, ...]]:
    settings = cast("Mapping[str, Mapping[str, Any]]", row.tool_settings)
    options, faults = server_of(row.config).options.with_tool_settings(settings)
    if unseen := {tool: _UNSAFE for tool in row.followed if options.tool(tool).own_effect is None}:
        options, _ = options.with_tool_settings(unseen)
    return options, faults


_NO_ADDRESS: Final = frozenset({"headers", "disabled", "x-starling"})


@dataclass(frozen=True, slots=True)
class Answer:
    """The row of a server that was asked for its tools, and these; None where it could not be listed."""

    row: ServerRow
    config: ServerConfig
    listed: Listed | None


def occasion_of(answer: Answer, row: ServerRow | None) -> Occasion:
    """Return the occasion of a listing that a file or a person asked for."""
    first = row is None or row.state == "degraded"
    moved = answer.row.source == "api" and (row is None or _address_of(row) != _address_of(answer.row))
    return Occasion(answer.config.options.pins, answer.row.source, first=first, moved=moved)


def kept_listing(answer: Answer, row: ServerRow | None) -> ServerRow | None:
    """Return a server as a start leaves it that was listed before, and not now: with the new settings alone.

    Settings under `x-starling` count at once: they may forbid something. None where the answer is to be stored.
    """
    if answer.listed is not None or row is None or row.state != "ready":
        return None
    without = {key: value for key, value in row.config.items() if key != "x-starling"}
    settings = {key: value for key, value in answer.row.config.items() if key == "x-starling"}
    config = server_of(without | settings)
    return replace(row, config=config.document, config_hash=config.hash)


def _address_of(row: ServerRow) -> JsonObject:
    """Return what of a configuration says which server it is: all but headers and settings of the platform."""
    return {key: value for key, value in row.config.items() if key not in _NO_ADDRESS}


def source_of(name: str, config: ServerConfig, known: Mapping[str, ServerRow], source: ServerSource) -> ServerSource:
    """Return the source of a listed server: a document over HTTP changes that of new and changed ones only."""
    before = known.get(name)
    is_same = before is not None and before.config_hash == config.hash
    return before.source if before is not None and is_same and source == "api" else source


def degraded(name: str, config: ServerConfig, error: ServerUnavailableError) -> Answer:
    about, document = config.options.description, config.document
    reason, remedy = storable_text(error.reason), storable_text(error.remedy)
    return Answer(ServerRow(name, document, config.hash, "file", "degraded", about, {}, reason, remedy), config, None)


def ready(name: str, config: ServerConfig, listed: Listed, source: ServerSource) -> ServerRow:
    """Return the row of a server that was listed, still without tools and what it says of itself."""
    faults = listed.faults(config.options)
    error, remedy = " ".join(fault for fault, _ in faults), " ".join(remedy for _, remedy in faults)
    return ServerRow(name, config.document, config.hash, source, "ready", "", {}, error, remedy)


def listing_of(row: ServerRow, config: ServerConfig, definitions: Definitions) -> ServerListing:
    tools = (
        ToolDefinition(
            server=row.name,
            name=tool,
            description=definitions[row.name, tool].get("description") or "",
            input_schema=definitions[row.name, tool]["inputSchema"],
            output_schema=definitions[row.name, tool].get("outputSchema"),
            effect=config.options.effect_of(tool),
            hash=pin,
            own_name=own_name_of(tool, definitions[row.name, tool]),
            declared=config.options.is_declared(tool),
            hinted=hinted_effect(definitions[row.name, tool]),
        )
        for tool, pin in sorted(row.tools.items())
    )
    error, remedy = row_faults(row)
    return ServerListing(
        name=row.name,
        description=row.description,
        config_hash=row.config_hash,
        state=row.state,
        tools=tuple(tools),
        error=error,
        remedy=remedy,
        quarantined=row.quarantined,
    )
