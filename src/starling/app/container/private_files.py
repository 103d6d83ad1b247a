"""What the platform keeps in its data folder, and stdio servers don't see."""

from mcp_gateway.sessions.private_files import PrivateFiles
from mcp_gateway.sessions.server_user import ServerUser
from starling.app.access.local_token import token_file
from starling.core.settings.schema import Settings
from starling.infra.postgres.embedded.cluster import control_folder


def private_files(settings: Settings) -> PrivateFiles:
    """Return the data folder, what is private in it (token, addresses, embedded database), and the servers' user.

    Raises ConfigurationError if there is no such user.
    """
    folder = settings.data_dir.expanduser().absolute()
    entries = (token_file(folder), folder / "api", control_folder(folder))
    return PrivateFiles(folder, entries, ServerUser.of(settings.server_user) if settings.server_user else None)
