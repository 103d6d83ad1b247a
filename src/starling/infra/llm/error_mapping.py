"""Maps transport and HTTP failures to the four model errors. No message contains a secret."""

import contextlib
import math
from email.utils import parsedate_to_datetime

import aiohttp

from starling.core.clock import SystemClock
from starling.core.errors import LLMConnectionError, LLMServerError, LLMTimeout, ModelError

_REMEDIES = {
    401: "Check the API key.",
    403: "Check that the API key permits this model.",
    404: "Check the model's name and the base URL.",
    429: "The rate limit of the endpoint is reached; try again later.",
}
_REASON_CHARS = 300


def transport_failure(model: str, host: str, timeout: float, error: BaseException) -> ModelError:
    """Return the error for a request without a complete answer from `host` within `timeout` seconds."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return LLMConnectionError(model, f"{host} did not accept the connection in time.", "Check the base URL.")
        case TimeoutError():
            return LLMTimeout(model, f"no complete answer within {timeout:.3g} s.")
        case aiohttp.ClientConnectorError():
            return LLMConnectionError(
                model, f"{host} can't be reached.", "Check the base URL and that the endpoint is running."
            )
        case _:
            return LLMConnectionError(model, f"the connection to {host} broke ({type(error).__name__}).")


def status_failure(model: str, status: int, text: str, retry_after: str | None) -> LLMServerError:
    """Return the error for an HTTP error status; `text` is from its body, without secrets."""
    reason = f"the endpoint answered {status}: {shortened(text)}" if text else f"the endpoint answered {status}."
    seconds = _retry_after_seconds(retry_after)
    return LLMServerError(model, reason, _REMEDIES.get(status, ""), status=status, retry_after=seconds)


def shortened(text: str) -> str:
    """Return `text` on one line, shortened for a message."""
    line = " ".join(text.split())
    return line if len(line) <= _REASON_CHARS else f"{line[:_REASON_CHARS]}…"


def excerpt(data: bytes) -> str:
    """Return the beginning of an arbitrary body, for a message."""
    return shortened(data[:1_000].decode("utf-8", "replace"))


def _retry_after_seconds(retry_after: str | None) -> float | None:
    """Return the seconds of a Retry-After header, which may be a number or a date; None for anything else."""
    if retry_after is None:
        return None
    with contextlib.suppress(ValueError):
        seconds = float(retry_after)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - SystemClock().now()).total_seconds())
    except (ValueError, TypeError):  # not a date, or one without a zone
        return None
