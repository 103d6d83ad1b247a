"""Where CrewAI stores what it writes when it is imported. No variable of the environment moves these two."""

from pathlib import Path

from crewai_core import settings, token_manager


def use(folder: str) -> None:
    """Let CrewAI's settings and the key of its account be in this folder, not in the home folder."""
    settings.DEFAULT_CONFIG_PATH = Path(folder, "settings.json")
    token_manager.TokenManager._get_secure_storage_path = staticmethod(lambda: Path(folder))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
