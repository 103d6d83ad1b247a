"""What a process takes from its settings before anything is started."""

from collections.abc import Mapping
from typing import Final

from mcp_gateway.configuration.servers import EXECUTION_SERVICE, McpConfig, RemoteServer, read_config
from mcp_gateway.sessions.isolation import PrivateFiles, ServerUser, installed_files
from starling.app.access.local_token import token_file
from starling.core.errors import ConfigurationError
from starling.core.settings.schema import Settings, environment
from starling.core.validation_errors import http_address
from starling.infra.embeddings.model_selection import check_embeddings
from starling.infra.llm.model_selection import check_models
from starling.infra.postgres.embedded.cluster import control_folder
from starling.infra.tracing.destination import destination_of

_URL: Final = "EXECUTION_SERVICE_URL"
_VARIABLE: Final = "EXECUTION_SERVICE_TOKEN"


def check_configuration(settings: Settings) -> None:
    """Raise ConfigurationError for an unusable model, embedding model, service address or `mcpServers` file."""
    check_models(settings)
    check_embeddings(settings)
    destination_of(settings)
    if settings.brainstem_url is not None:
        http_address("BRAINSTEM_URL", settings.brainstem_url, "http://localhost:8003")
    servers_of_settings(settings)
    if settings.mcp_config is not None:
        read_config(settings.mcp_config)


def servers_of_settings(settings: Settings) -> McpConfig:
    """Return the execution service as a server, if it is set; its token as a reference. Raises ConfigurationError."""
    if settings.execution_service_url is None:
        return {}
    url = http_address(_URL, settings.execution_service_url, "http://localhost:8002")
    headers = {"Authorization": f"Bearer ${{{_VARIABLE}}}"} if settings.execution_service_token else {}
    if {"?", "#"}.intersection(url):
        raise ConfigurationError(f"{_URL} has a `?` or `#`.", "Leave it out: `/tools` is added at the end.")
    return {EXECUTION_SERVICE: RemoteServer(type="execution_service", url=url, headers=headers)}


def server_variables(settings: Settings) -> Mapping[str, str]:
    """Return what `${VAR}` in configurations of servers refers to: the environment, and the token of the settings."""
    token = settings.execution_service_token
    return {**environment(), _VARIABLE: token.get_secret_value()} if token else environment()


def private_files(settings: Settings) -> PrivateFiles:
    """Return the data folder, what is private in it (token, addresses, embedded database), and the servers' user.

    Read-only are the platform's programs, its settings file and the `mcpServers` file. Raises ConfigurationError if
    there is no such user.
    """
    folder = settings.data_dir.expanduser().absolute()
    entries = (token_file(folder), folder / "api", control_folder(folder))
    user = ServerUser.of(settings.server_user) if settings.server_user else None
    files = filter(None, (settings.settings_file, settings.mcp_config))
    return PrivateFiles(folder, entries, user, (*installed_files(), *files))
