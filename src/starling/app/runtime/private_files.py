"""What the platform keeps in its data folder, and stdio servers don't see."""

from mcp_gateway.sessions.private_files import PrivateFiles
from starling.app.runtime.local_token import token_file
from starling.core.settings.schema import Settings
from starling.infra.postgres.embedded.cluster import control_folder


def private_files(settings: Settings) -> PrivateFiles:
    """Return the data folder, and in it the token, the addresses of running platforms and the embedded database."""
    folder = settings.data_dir.expanduser().absolute()
    return PrivateFiles(folder, (token_file(folder), folder / "api", control_folder(folder)))
