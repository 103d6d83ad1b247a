"""Loads the settings from command-line options, environment variables and the settings file."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ValidationError

from starling.core.errors import ConfigurationError
from starling.core.governance import GovernanceRow
from starling.core.settings.schema import Limits, Settings
from starling.core.settings.sources import EnvironmentSource, origin
from starling.core.validation_errors import fault_text


def load_settings(file_values: Mapping[str, Any], file: str, **options: Any) -> Settings:
    """Merge command-line options, environment variables and the content of `file`, in this order of precedence.

    Raises ConfigurationError, which names each wrong value and where it was set.
    """

    class FromFile(Settings):
        _file_values: ClassVar[Mapping[str, Any]] = file_values
        settings_file: ClassVar[Path | None] = Path(file)

    try:
        return FromFile(**options)
    except ValidationError as error:
        sources = Settings.model_fields, options, EnvironmentSource(Settings)(), file
        wrong = "; ".join(
            f"{origin(item['loc'], *sources)}: {fault_text(item, 'setting')}{_meant(item['type'], item['loc'])}"
            for item in error.errors()
        )
        raise ConfigurationError(
            f"The settings are wrong: {wrong}.", "docs/reference/settings.md lists all settings."
        ) from None


def _meant(fault: str, location: tuple[int | str, ...]) -> str:
    """Return which setting was probably meant by an unknown name."""
    fields = GovernanceRow.model_fields if "governance" in str(location[0]).lower() else Limits.model_fields
    known = Settings.model_fields if len(location) == 1 else fields
    near = get_close_matches(str(location[-1]), known, n=1) if fault == "extra_forbidden" else []
    return f" (did you mean {near[0]}?)" if near else ""
