"""Errors as OpenAI's clients read them, on the routes that these call."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel

from starling.infra.fast_json import dumps

_RESPONSES: Final = "/v1/responses"
_PATHS: Final = ("/v1/models", "/v1/chat/completions", _RESPONSES)
_INVALID: Final = "invalid_request_error"
_TYPES: Final[Mapping[int, str]] = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_PARAMS: Final = {"model_not_found": "model", "previous_response_not_found": "previous_response_id"}
_CODES: Final = {"unauthorized": "invalid_api_key", "rate_limited": "rate_limit_exceeded"}
_INDEX: Final = re.compile(r"\.(\d+)(?=\.|$)")
_BODY: Final = re.compile(r"(^|; )body\.")


class OpenAIErrorDetail(BaseModel):
    """What was wrong, and with which field."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class OpenAIError(BaseModel):
    """The body of every error of the routes for OpenAI's clients."""

    error: OpenAIErrorDetail


def is_for_openai(path: str) -> bool:
    """Whether OpenAI's clients call a path."""
    return any(path == one or path.startswith(f"{one}/") for one in _PATHS)


def openai_error(status: int, detail: str, remedy: str, code: str, errors: Sequence[Mapping[str, Any]]) -> OpenAIError:
    """Return the body for a problem."""
    place = str(errors[0].get("where", "")) if errors else ""
    part, _, field = place.partition(".")
    param = _INDEX.sub(r"[\1]", field if part in ("body", "query", "path", "header") else place) or None
    kind = _TYPES.get(status) or ("server_error" if status >= 500 else _INVALID)
    message = f"{_BODY.sub(r'\1', detail).rstrip('.')}. {remedy}".rstrip()
    found = OpenAIErrorDetail(message=message, type=kind, param=_PARAMS.get(code, param), code=_CODES.get(code, code))
    return OpenAIError(error=found)


def openai_error_event(path: str, error: Mapping[str, Any]) -> bytes:
    """Return the last event of a stream that ends early; in the responses API each event has a type."""
    if path.startswith(_RESPONSES):
        event = {**error["error"], "type": "error", **error}
        return b"event: error\ndata: %b\n\n" % dumps(event)
    return b"data: %b\n\n" % dumps(error)
