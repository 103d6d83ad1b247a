"""The local token of APIs that tests open, for clients that are admins of this machine."""

from pathlib import Path
from typing import Final

from starling.app.access.local_token import PREFIX, read_token

TOKEN: Final = f"{PREFIX}of-tests"
AS_ADMIN: Final = {"Authorization": f"Bearer {TOKEN}"}


def admin_headers(data_dir: Path) -> dict[str, str]:
    """Return the headers of an admin of the platform that runs on a data folder."""
    return {"Authorization": f"Bearer {read_token(data_dir)}"}
