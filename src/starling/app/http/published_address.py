"""The port file of the services that serve the API."""

import os
from contextlib import AbstractContextManager
from importlib.metadata import version
from urllib.parse import urlsplit

from starling.app.access.port_file import RunningPlatform, local_address, published
from starling.app.http.loopback_policy import is_loopback
from starling.core.settings.client import database_name
from starling.core.settings.schema import Settings


def published_address(settings: Settings, address: str) -> AbstractContextManager[None]:
    """Return the context during which commands on the data folder find this process at `address`."""
    here = local_address(address)
    url = settings.database_url.get_secret_value() if settings.database_url else ""
    keyless = not settings.require_keys and is_loopback(urlsplit(here).hostname or "")
    platform = RunningPlatform(here, version("starling-swarm"), os.getpid(), database_name(url), keyless)
    return published(settings.data_dir, platform)
