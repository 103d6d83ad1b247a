"""Redaction of logs: the secrets of the settings, and texts that look like secrets."""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Self, cast
from urllib.parse import quote, unquote, urlsplit

from pydantic import BaseModel, SecretStr

from starling.core.settings.schema import Settings

_HIDDEN: Final = "***"
_SHORTEST: Final = 6  # shorter secrets would match harmless words
_AUTHORIZATION = re.compile(r"""(authorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic)\s+)?)[^\s"',;]+""", re.IGNORECASE)
_BEARER = re.compile(r"\b(bearer\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_KEY = re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}")
_SECRET_VARIABLE = re.compile(r"(?:PASSW(?:OR)?D|PASS|SECRET|TOKEN|KEY|CREDENTIALS?|AUTHORIZATION)S?$", re.IGNORECASE)
_PASSWORD = re.compile(r"(://[^\s:/@]*:)[^\s@/]+(?=@)")


class Redaction:
    """Replaces secrets in texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    @classmethod
    def of(cls, settings: Settings, variables: Mapping[str, str] = MappingProxyType({})) -> Self:
        """Return the redaction of all secrets of the settings, and of passwords in addresses.

        `variables` are those of an environment: a value counts as a secret if its name says so.
        """
        named = (value for name, value in variables.items() if _SECRET_VARIABLE.search(name))
        return cls(form for secret in (*_secrets(settings), *named) for form in _forms(secret))

    def __call__(self, text: str) -> str:
        """Return `text` with `***` where a secret was."""
        if self._known is not None:
            text = self._known.sub(_HIDDEN, text)
        text = _AUTHORIZATION.sub(rf"\1{_HIDDEN}", text)
        text = _BEARER.sub(rf"\1{_HIDDEN}", text)
        text = _PASSWORD.sub(rf"\1{_HIDDEN}", text)
        return _KEY.sub(_HIDDEN, text)


def _secrets(value: object) -> Iterator[str]:
    match value:
        case SecretStr():
            yield value.get_secret_value()
        case BaseModel():
            for _, item in value:
                yield from _secrets(item)
        case Mapping():
            for item in cast("Mapping[Any, Any]", value).values():
                yield from _secrets(item)
        case list() | tuple():
            for item in cast("Iterable[Any]", value):
                yield from _secrets(item)
        case _:
            pass


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret and, for an address, its password, encoded and decoded."""
    yield secret
    try:
        password = urlsplit(secret).password
    except ValueError:
        return
    if password:
        yield from {password, unquote(password), quote(unquote(password), safe="")}
