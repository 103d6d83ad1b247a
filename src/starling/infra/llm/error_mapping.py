"""From what goes wrong on the wire to the four classes of model errors. No message carries a secret."""

import aiohttp

from starling.core.errors import LLMConnectionError, LLMServerError, LLMTimeout, ModelError

_REMEDIES = {
    401: "Check the API key.",
    403: "Check that the API key may use this model.",
    404: "Check the model's name and the base URL.",
    429: "The endpoint limits how often it may be asked; try again later.",
}
_REASON_CHARS = 300


def transport_failure(model: str, host: str, timeout: float, error: BaseException) -> ModelError:
    """Return the error for a request that got no whole answer from `host` within `timeout` seconds."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return LLMConnectionError(model, f"{host} doesn't accept connections in time.", "Check the base URL.")
        case TimeoutError():
            return LLMTimeout(model, f"no whole answer within {timeout:.3g} s.")
        case aiohttp.ClientConnectorError():
            return LLMConnectionError(model, f"{host} can't be reached.", "Check that it runs and the base URL.")
        case _:
            return LLMConnectionError(model, f"the connection to {host} broke ({type(error).__name__}).")


def status_failure(model: str, status: int, said: str, retry_after: str | None) -> LLMServerError:
    """Return the error for an HTTP status that isn't a success; `said` is scrubbed text of its body."""
    reason = f"the endpoint answered {status}: {shortened(said)}" if said else f"the endpoint answered {status}."
    seconds = _seconds(retry_after)
    return LLMServerError(model, reason, _REMEDIES.get(status, ""), status=status, retry_after=seconds)


def shortened(text: str) -> str:
    """Return `text` on one line and short enough for a message."""
    line = " ".join(text.split())
    return line if len(line) <= _REASON_CHARS else f"{line[:_REASON_CHARS]}…"


def excerpt(data: bytes) -> str:
    """Return the beginning of a body that may be anything, for a message."""
    return shortened(data[:1_000].decode("utf-8", "replace"))


def _seconds(retry_after: str | None) -> float | None:
    """Read a Retry-After header. Its other form, a date, counts as none."""
    try:
        return None if retry_after is None else max(0.0, float(retry_after))
    except ValueError:
        return None
