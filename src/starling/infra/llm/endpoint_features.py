"""What an endpoint understands of the chat completions protocol, learned from what it refuses."""

from enum import Enum

from starling.core.llm import ModelRequest


class Feature(Enum):
    """A part of a request that some endpoints refuse; its value is what their refusals say."""

    STREAM_USAGE = ("stream_options", "include_usage")
    TOKEN_LIMIT = ("max_tokens",)  # newer models want `max_completion_tokens`
    TEMPERATURE = ("temperature",)
    JSON_SCHEMA = ("json_schema", "response_format", "schema", "strict")
    JSON_OBJECT = ("json_object", "response_format")


# What an endpoint may stumble over without naming it.
_DOUBTFUL = (Feature.JSON_SCHEMA, Feature.STREAM_USAGE)

type Dialect = frozenset[Feature]

EVERYTHING: Dialect = frozenset(Feature)


def used_features(dialect: Dialect, request: ModelRequest, *, stream: bool) -> list[Feature]:
    """Return the features that this request makes use of in this dialect."""
    uses = {
        Feature.STREAM_USAGE: stream,
        Feature.TOKEN_LIMIT: request.max_tokens is not None,
        Feature.TEMPERATURE: True,
        Feature.JSON_SCHEMA: request.response is not None,
        Feature.JSON_OBJECT: request.response is not None and Feature.JSON_SCHEMA not in dialect,
    }
    return [feature for feature in Feature if uses[feature] and feature in dialect]


def without_refused(dialect: Dialect, used: list[Feature], refusal: str) -> Dialect | None:
    """Return the dialect to try next after a 400 with the text `refusal`.

    None where another form of the same request wouldn't help.
    """
    said = refusal.lower()
    if "context_length" in said or "context length" in said:
        return None
    named = [feature for feature in used if any(word in said for word in feature.value)]
    doubtful = named or [feature for feature in _DOUBTFUL if feature in used]
    return dialect - {doubtful[0]} if doubtful else None
