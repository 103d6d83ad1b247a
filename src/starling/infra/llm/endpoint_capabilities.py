"""Features of the chat completions protocol that an endpoint supports, learned from its refusals."""

from collections.abc import Mapping
from enum import Enum

from starling.core.llm import ModelRequest


class Feature(Enum):
    """A part of a request that some endpoints refuse.

    The value lists words that name it in refusals, with spaces for hyphens and underscores.
    """

    STREAM_USAGE = ("stream options", "include usage")
    TOKEN_LIMIT = ("max tokens",)  # newer models need `max_completion_tokens`
    TEMPERATURE = ("temperature",)
    TOOLS = ("tools", "tool choice", "tool use", "tool call", "function call", "functions")
    JSON_SCHEMA = ("json schema", "response format", "schema", "strict")
    SCHEMA_TOOL = ("tool", "function")  # the schema as a tool that has to be called
    JSON_OBJECT = ("json object", "response format")


_SPACES = str.maketrans("-_", "  ")
# Features that endpoints refuse without naming them.
_DOUBTFUL = (Feature.JSON_SCHEMA, Feature.STREAM_USAGE, Feature.SCHEMA_TOOL, Feature.JSON_OBJECT, Feature.TOOLS)
_FEATURE_REFUSALS = (400, 422)
_NAMED_REFUSALS = (404, 500, 501)  # used by some routers and servers for a feature that they name
_OTHER_REFUSALS = ("context length", "content filter", "content policy", "content management policy")

type Dialect = frozenset[Feature]

EVERYTHING: Dialect = frozenset(Feature)

# Names of features in the settings.
NAMED_FEATURES: Mapping[str, Dialect] = {
    "tools": frozenset({Feature.TOOLS, Feature.SCHEMA_TOOL}),
    "json_schema": frozenset({Feature.JSON_SCHEMA}),
    "json_object": frozenset({Feature.JSON_OBJECT}),
}


def schema_form(dialect: Dialect, request: ModelRequest) -> Feature | None:
    """Return the feature by which the answer gets its schema; None: by the prompt alone, or there is no schema."""
    if request.response is None:
        return None
    if Feature.JSON_SCHEMA in dialect:
        return Feature.JSON_SCHEMA
    if {Feature.SCHEMA_TOOL, Feature.TOOLS} <= dialect and not request.tools:
        return Feature.SCHEMA_TOOL
    return Feature.JSON_OBJECT if Feature.JSON_OBJECT in dialect else None


def used_features(dialect: Dialect, request: ModelRequest, *, stream: bool) -> list[Feature]:
    """Return the features that this request uses in this dialect."""
    form = schema_form(dialect, request)
    uses = {
        Feature.STREAM_USAGE: stream,
        Feature.TOKEN_LIMIT: request.max_tokens is not None,
        Feature.TEMPERATURE: True,
        Feature.TOOLS: bool(request.tools),
    }
    return [feature for feature in Feature if (uses.get(feature) and feature in dialect) or feature is form]


def without_refused(dialect: Dialect, used: list[Feature], status: int, refusal: str) -> Dialect | None:
    """Return the dialect to try after a refusal with this HTTP status and text.

    None if the refusal is not about a feature.
    """
    text = refusal.lower().translate(_SPACES)
    if status not in (*_FEATURE_REFUSALS, *_NAMED_REFUSALS) or any(words in text for words in _OTHER_REFUSALS):
        return None
    refused = [feature for feature in used if any(word in text for word in feature.value)]
    if not refused and status in _FEATURE_REFUSALS:
        refused = [feature for feature in _DOUBTFUL if feature in used]
    return dialect - {refused[0]} if refused else None
