"""The environment that CrewAI reads when it is imported."""

import os
from typing import Final

_VARIABLES: Final = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",  # else a terminal is asked whether to share traces
    "PYTHON_DOTENV_DISABLED": "true",  # else it loads any .env above its own files
}


def set_environment(folder: str) -> None:
    """Set what keeps CrewAI from sending, from asking and from loading `.env`; what it stores is for `folder`."""
    os.environ.update(_VARIABLES, CREWAI_STORAGE_DIR=folder)  # noqa: TID251 - CrewAI reads nothing else
