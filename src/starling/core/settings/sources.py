"""Sources of settings, so that an error names the option, variable or file in which the wrong value was set."""

import json
from collections.abc import Mapping
from typing import Any, cast

from pydantic import AliasChoices
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from starling.core.errors import ConfigurationError
from starling.core.json import without_repeated_names


class EnvironmentSource(EnvSettingsSource):
    """Environment variables, one per setting; an error names the variable that can't be read."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Decode a variable that contains JSON. Raises ConfigurationError."""
        try:
            decoded = super().decode_complex_value(field_name, field, value)
            if decoded is not value:  # some values aren't JSON
                json.loads(value, object_pairs_hook=without_repeated_names)
            return decoded
        except ValueError as error:
            raise ConfigurationError(
                f"{_names_of(field_name, field)[0]} in the environment is not JSON: {error}.",
                'Write an object, such as {"name": "value"}.',
            ) from None

    def _extract_field_info(
        self, field: FieldInfo, field_name: str, model_config: Mapping[str, Any] | None = None
    ) -> list[tuple[str, str, bool]]:
        # Lower-case names are for the file only: variables such as HOST and MODEL belong to other programs.
        return [item for item in super()._extract_field_info(field, field_name, model_config) if item[0].isupper()]


def _names_of(name: str, field: FieldInfo) -> tuple[str, ...]:
    """Return the names of a setting: its variables first, then its name in the file."""
    alias = field.validation_alias
    return tuple(map(str, alias.choices)) if isinstance(alias, AliasChoices) else (name,)


def origin(
    location: tuple[int | str, ...],
    fields: Mapping[str, FieldInfo],
    options: Mapping[str, object],
    variables: Mapping[str, object],
    file: str,
) -> str:
    """Return where the value at the location of a pydantic error was set, by the name used there."""
    variable, *inner = map(str, location)
    names = {alias: name for name, field in fields.items() for alias in _names_of(name, field)}
    name = names.get(variable, variable)
    if name in options:
        return f"--{name.replace('_', '-')}"
    value = variables.get(variable)
    has_inner = not inner or not isinstance(value, dict) or inner[0] in cast("dict[str, object]", value)
    if variable in variables and has_inner:  # otherwise the value comes from the file
        return ".".join((variable, *inner))
    return f"{'.'.join((name, *inner))} in {file}"
