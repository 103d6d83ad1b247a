"""What can be wrong with a configuration, found before anything is started."""

from mcp_gateway.config import read_config
from starling.core.settings import Settings
from starling.infra.llm.opening import check_models


def check(settings: Settings) -> None:
    """Raise ConfigurationError for a model or an `mcpServers` file that can't be used."""
    check_models(settings)
    if settings.mcp_config is not None:
        read_config(settings.mcp_config)
