"""Langfuse's published schemas: the types of its API, generated from its definition, and the names of its attributes.

The types come with the package that the lock file pins. They allow unknown fields, as Langfuse ignores them; here an
unknown field is an error.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast, get_args

from langfuse import LangfuseOtelSpanAttributes, ObservationTypeLiteral, api
from langfuse.api.core.pydantic_utilities import parse_obj_as
from pydantic import BaseModel, ValidationError

_NAMES: Final = {value for name, value in vars(LangfuseOtelSpanAttributes).items() if name.isupper()}
_NAMES_BEFORE_5: Final = {"langfuse.session.id"}  # Langfuse reads it as it does `session.id`
_MAPS: Final = (LangfuseOtelSpanAttributes.TRACE_METADATA, LangfuseOtelSpanAttributes.OBSERVATION_METADATA)
_TYPES: Final = frozenset(name for some in get_args(ObservationTypeLiteral) for name in get_args(some))
_LEVELS: Final = {"DEBUG", "DEFAULT", "WARNING", "ERROR"}
_TAG_CHARS: Final = 200


def errors(schema: Any, body: object) -> list[str]:
    """Return what is wrong with a body, by one of the types of `langfuse.api`."""
    try:
        return list(_unknown(parse_obj_as(schema, body)))
    except ValidationError as error:
        return [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]


def score_errors(body: object) -> list[str]:
    """Return what is wrong with the body of `POST /api/public/scores`, which is a list of scores."""
    if not isinstance(body, list):
        return ["not a list"]
    scores = cast("list[dict[str, Any]]", body)
    if found := errors(api.scores.CreateScoresRequest, scores):
        return found
    return [problem for score in scores for problem in _value_errors(score)]


def attribute_errors(attributes: Mapping[str, Any]) -> list[str]:
    """Return which of Langfuse's attributes of a span are none of its, or have another type than it reads."""
    ours = {name: value for name, value in attributes.items() if name.startswith("langfuse.")}
    unknown = [f"{name} is no attribute of Langfuse" for name in ours if not _is_known(name)]
    kind = ours.get(LangfuseOtelSpanAttributes.OBSERVATION_TYPE)
    level = ours.get(LangfuseOtelSpanAttributes.OBSERVATION_LEVEL, "DEFAULT")
    tags = ours.get(LangfuseOtelSpanAttributes.TRACE_TAGS, [])
    wrong = {
        f"there is no type {kind!r}": kind not in _TYPES,
        f"there is no level {level!r}": level not in _LEVELS,
        f"tags {tags!r} are no short texts": not _are_tags(tags),
    }
    return unknown + [problem for problem, is_one in wrong.items() if is_one]


def _is_known(name: str) -> bool:
    return name in _NAMES | _NAMES_BEFORE_5 or name.rpartition(".")[0] in _MAPS


def _are_tags(tags: object) -> bool:
    if not isinstance(tags, Sequence) or isinstance(tags, str):
        return False
    return all(isinstance(tag, str) and 0 < len(tag) <= _TAG_CHARS for tag in cast("Sequence[object]", tags))


def _value_errors(score: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the types can't say: a score is of something, and its value fits its data type."""
    if not any(score.get(name) for name in ("traceId", "sessionId", "datasetRunId")):
        yield "a score is of a trace, a session or a dataset run"
    if score.get("observationId") and not score.get("traceId"):
        yield "a score of an observation names its trace"
    is_text = isinstance(score["value"], str)
    if is_text != (score.get("dataType", "NUMERIC") in {"CATEGORICAL", "TEXT"}):
        yield f"value {score['value']!r} is no {score.get('dataType')}"


def _unknown(found: object, place: str = "") -> Iterator[str]:
    if isinstance(found, BaseModel):
        yield from (f"{place}{name}: unknown field" for name in found.model_extra or {})
        for name in type(found).model_fields:
            yield from _unknown(getattr(found, name), f"{place}{name}.")
    elif isinstance(found, list):
        for number, item in enumerate(cast("list[object]", found)):
            yield from _unknown(item, f"{place}{number}.")
