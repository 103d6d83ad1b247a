"""Configurations of servers in requests: their faults, and what they count as."""

import json
from collections.abc import Generator
from contextlib import contextmanager

from starling.core.errors import ConfigurationError, InvalidRequestError
from starling.core.json import RepeatedNameError, without_repeated_names
from starling.core.principal import Principal
from starling.core.tools import ServerSource


@contextmanager
def fault_of_the_document() -> Generator[None]:
    """Turn faults of a configuration into those of the request."""
    try:
        yield
    except ConfigurationError as error:  # what a file would be to blame for at the command line
        raise InvalidRequestError(error.message, "Correct the document; nothing was changed.") from None


def source_of(caller: Principal, on_host: ServerSource) -> ServerSource:
    """Return what the document of a caller counts as: an admin of the machine could change its servers otherwise."""
    return on_host if caller.on_host else "api"


def refuse_repeated_names(body: bytes) -> None:
    """Raise InvalidRequestError where a body of JSON, which was read before, has a name twice in one object."""
    try:
        json.loads(body, object_pairs_hook=without_repeated_names)
    except RepeatedNameError as error:
        raise InvalidRequestError(f"The document is wrong: {error}.", "Give each its own name.") from None
