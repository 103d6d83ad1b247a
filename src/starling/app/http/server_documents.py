"""Configurations of servers in requests: their faults, and what they count as."""

from collections.abc import Generator
from contextlib import contextmanager

from starling.core.errors import ConfigurationError, InvalidRequestError
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
