"""Checks of the configuration before anything is started."""

from mcp_gateway.configuration.servers import read_config
from starling.core.settings.schema import Settings
from starling.infra.embeddings.model_selection import check_embeddings
from starling.infra.llm.factory import check_models
from starling.infra.tracing.destination import destination_of


def check_configuration(settings: Settings) -> None:
    """Raise ConfigurationError for an unusable model, embedding model, trace address or `mcpServers` file."""
    check_models(settings)
    check_embeddings(settings)
    destination_of(settings)
    if settings.mcp_config is not None:
        read_config(settings.mcp_config)
