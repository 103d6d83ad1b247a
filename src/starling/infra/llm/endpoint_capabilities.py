"""Features of the chat completions protocol that an endpoint supports, learned from its refusals."""

from enum import Enum

from starling.core.llm import ModelRequest


class Feature(Enum):
    """A part of a request that some endpoints refuse; the value lists words that name it in refusals."""

    STREAM_USAGE = ("stream_options", "include_usage")
    TOKEN_LIMIT = ("max_tokens",)  # newer models need `max_completion_tokens`
    TEMPERATURE = ("temperature",)
    JSON_SCHEMA = ("json_schema", "response_format", "schema", "strict")
    JSON_OBJECT = ("json_object", "response_format")


# Features that endpoints refuse without naming them.
_DOUBTFUL = (Feature.JSON_SCHEMA, Feature.STREAM_USAGE)

type Dialect = frozenset[Feature]

EVERYTHING: Dialect = frozenset(Feature)


def used_features(dialect: Dialect, request: ModelRequest, *, stream: bool) -> list[Feature]:
    """Return the features that this request uses in this dialect."""
    uses = {
        Feature.STREAM_USAGE: stream,
        Feature.TOKEN_LIMIT: request.max_tokens is not None,
        Feature.TEMPERATURE: True,
        Feature.JSON_SCHEMA: request.response is not None,
        Feature.JSON_OBJECT: request.response is not None and Feature.JSON_SCHEMA not in dialect,
    }
    return [feature for feature in Feature if uses[feature] and feature in dialect]


def without_refused(dialect: Dialect, used: list[Feature], refusal: str) -> Dialect | None:
    """Return the dialect to try after a refusal with the text `refusal`.

    None if the refusal is not about a feature.
    """
    text = refusal.lower()
    if "context_length" in text or "context length" in text:
        return None
    named = [feature for feature in used if any(word in text for word in feature.value)]
    doubtful = named or [feature for feature in _DOUBTFUL if feature in used]
    return dialect - {doubtful[0]} if doubtful else None
