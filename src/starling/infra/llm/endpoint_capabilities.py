"""Features of the chat completions protocol that an endpoint supports, learned from its refusals.

What an endpoint refused is left out for ten minutes and then tried again. Native tools are only left out of further
requests if the refusal says that tools are unsupported: it may be about one tool, or one conversation.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from starling.core.clock import Clock, SystemClock
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
_OTHER_REFUSALS = (
    *("context length", "context window", "context size", "maximum context", "prompt is too long", "input is too long"),
    *("input token", "too many tokens", "maximum number of tokens", "reduce the length", "request too large"),
    *("content filter", "content policy", "content management policy"),
    *("api key", "credit balance", "billing", "quota"),
)
# Phrases of a refusal by which it says that a feature is unsupported, and not that its use was wrong.
_UNSUPPORTED: Final = re.compile(
    r"n.t (?:currently )?(?:be )?(?:support|permitted|allowed|available|enabled|implemented|recogni)"
    r"|\bno\b.* support|unsupported|unavailable|disabled|unrecogni[sz]ed"
    r"|un(?:known|expected) (?:parameter|field|argument|keyword|name|key|property)"
    r"|requires?\b.*\b(?:flag|enable|jinja)\b"
)
_ABOUT_ONE_TOOL: Final = re.compile(
    r"schema|tools? ?[\[.] ?(?:\d|function|custom)|functions?[\[.]\d|function declarations"
)
_SENTENCE_END: Final = re.compile(r"[.;!] |\n")
_RETRY_SECONDS = 600.0

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


class EndpointFeatures:
    """What one endpoint takes of the `possible` features, those in `lacks` never."""

    def __init__(self, possible: Dialect, lacks: Dialect = frozenset(), clock: Clock | None = None) -> None:
        self._dialect = possible - lacks
        self._lacks = possible & lacks
        self._clock = clock or SystemClock()
        self._left_out_until: dict[Feature, float] = {}  # seconds of the clock
        self._last_without: Dialect = frozenset()

    @property
    def lacking(self) -> Dialect:
        """Features that requests do without now, or that the last answer was given without."""
        return self._lacks | self._left_out() | self._last_without

    def attempt(self, without: Dialect = frozenset()) -> "FeatureAttempt":
        """Return the features to begin a request with."""
        return FeatureAttempt(self._dialect - self._left_out() - without, self)

    def accepted(self, refused: Mapping[Feature, bool]) -> None:
        """Remember what an answer was given without; True for features that the next requests leave out, too."""
        until = self._clock.monotonic() + _RETRY_SECONDS
        self._left_out_until |= {feature: until for feature, remembered in refused.items() if remembered}
        self._last_without = frozenset(refused)

    def _left_out(self) -> Dialect:
        now = self._clock.monotonic()
        return frozenset(feature for feature, until in self._left_out_until.items() if now < until)


@dataclass(slots=True)
class FeatureAttempt:
    """The features of one request, fewer with each refusal."""

    dialect: Dialect
    _endpoint: EndpointFeatures
    _refused: dict[Feature, bool] = field(default_factory=dict[Feature, bool])

    def reduce(self, used: list[Feature], status: int, refusal: str) -> bool:
        """Leave out the feature that a refusal with this HTTP status and text is about; False if it is about none."""
        text = refusal.lower().translate(_SPACES)
        feature = _refused_feature(used, status, text)
        if feature is not None:
            self.leave_out(feature, remembered=_is_certain(feature, text))
        return feature is not None

    def leave_out(self, feature: Feature, *, remembered: bool = True) -> None:
        """Do without a feature."""
        self.dialect -= {feature}
        self._refused[feature] = remembered

    def succeed(self) -> None:
        """Remember what was left out: it made the request succeed."""
        if next(reversed(self._refused), None) is Feature.STREAM_USAGE:  # leaving out more was not needed
            self._refused[Feature.STREAM_USAGE] = True
        self._endpoint.accepted(self._refused)


def _refused_feature(used: list[Feature], status: int, text: str) -> Feature | None:
    if status not in (*_FEATURE_REFUSALS, *_NAMED_REFUSALS) or any(words in text for words in _OTHER_REFUSALS):
        return None
    named = [feature for feature in used if any(word in text for word in feature.value)]
    if status in _FEATURE_REFUSALS:
        return next(iter(named or [feature for feature in _DOUBTFUL if feature in used]), None)
    return next((feature for feature in named if feature is not Feature.TOOLS or _says_unsupported(text)), None)


def _is_certain(feature: Feature, text: str) -> bool:
    """Whether further requests, too, would be refused for this feature."""
    if feature is Feature.TOOLS:
        return _says_unsupported(text)
    return feature is not Feature.STREAM_USAGE or any(word in text for word in feature.value)


def _says_unsupported(text: str) -> bool:
    """Whether a sentence of a refusal says that tools are unsupported, and not that one of them is wrong."""
    return any(
        any(word in sentence for word in Feature.TOOLS.value)
        and _UNSUPPORTED.search(sentence)
        and not _ABOUT_ONE_TOOL.search(sentence)
        for sentence in _SENTENCE_END.split(text)
    )
