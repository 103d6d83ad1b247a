"""What a process takes from its settings before anything is started."""

from mcp_gateway.configuration.servers import read_config
from mcp_gateway.sessions.isolation import PrivateFiles, ServerUser, installed_files
from starling.app.access.local_token import token_file
from starling.core.settings.schema import Settings
from starling.infra.embeddings.model_selection import check_embeddings
from starling.infra.llm.model_selection import check_models
from starling.infra.postgres.embedded.cluster import control_folder
from starling.infra.tracing.destination import destination_of


def check_configuration(settings: Settings) -> None:
    """Raise ConfigurationError for an unusable model, embedding model, trace address or `mcpServers` file."""
    check_models(settings)
    check_embeddings(settings)
    destination_of(settings)
    if settings.mcp_config is not None:
        read_config(settings.mcp_config)


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
