"""Where a setting comes from, so that what is wrong with it is said of the right place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import AliasChoices
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from starling.core.errors import ConfigurationError


class EnvironmentSource(EnvSettingsSource):
    """The environment: one variable for each setting, and a message that names the one that can't be read."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Decode a variable that holds JSON. Raises ConfigurationError."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError as error:
            raise ConfigurationError(
                f"{_names_of(field_name, field)[0]} in the environment is not JSON: {error}.",
                'Write an object, such as {"name": "value"}.',
            ) from None

    def _extract_field_info(
        self, field: FieldInfo, field_name: str, model_config: Mapping[str, Any] | None = None
    ) -> list[tuple[str, str, bool]]:
        # The names in small letters are for the file: HOST or MODEL in an environment belongs to other programs.
        return [item for item in super()._extract_field_info(field, field_name, model_config) if item[0].isupper()]


def _names_of(name: str, field: FieldInfo) -> tuple[str, ...]:
    """Return a setting's names: its variables first, then what it is called in a file."""
    alias = field.validation_alias
    return tuple(map(str, alias.choices)) if isinstance(alias, AliasChoices) else (name,)


@dataclass(frozen=True, slots=True)
class Origins:
    """What was set where: by options of the command line, by variables, else in `file`."""

    fields: Mapping[str, FieldInfo]
    options: Mapping[str, object]
    variables: Mapping[str, object]
    file: str

    def place(self, location: tuple[int | str, ...]) -> str:
        """Return where the value at a pydantic error's location was set, as whoever set it knows it."""
        variable, *inner = map(str, location)
        names = {alias: name for name, field in self.fields.items() for alias in _names_of(name, field)}
        name = names.get(variable, variable)
        if name in self.options:
            return f"--{name.replace('_', '-')}"
        if variable in self.variables and _holds(self.variables[variable], inner):
            return ".".join((variable, *inner))
        return f"{'.'.join((name, *inner))} in {self.file}"


def _holds(value: object, inner: list[str]) -> bool:
    """Whether a variable says something at this place; what it doesn't say comes from the file."""
    return not inner or not isinstance(value, dict) or inner[0] in cast("dict[str, object]", value)
