"""What follows a call of a tool that succeeded: a closed set, as the tool's settings name it."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_serializer


class InvalidateCache(BaseModel):
    """Forget the kept results of a `read` tool of the same server."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    invalidate: Annotated[str, Field(min_length=1)]


class EmitEvent(BaseModel):
    """Put an event with this name into the run's stream."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    event: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]{0,63}$")]


class RelistServer(BaseModel):
    """List the tools of the server again. Written as the word `relist`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @model_serializer
    def _word(self) -> str:
        return "relist"


def _closed(value: Any) -> Any:
    """Return the effect that a value stands for. Raises ValueError."""
    match value:
        case InvalidateCache() | EmitEvent() | RelistServer():
            return value
        case "relist":
            return RelistServer()
        case {"invalidate": _}:
            return InvalidateCache.model_validate(value)
        case {"event": _}:
            return EmitEvent.model_validate(value)
        case _:
            raise ValueError('must be "relist", {"invalidate": TOOL} or {"event": NAME}')


PostEffect = Annotated[InvalidateCache | EmitEvent | RelistServer, BeforeValidator(_closed)]
