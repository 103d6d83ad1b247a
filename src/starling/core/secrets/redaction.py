"""Redaction of logs and skills: the secrets of the settings, and texts that look like secrets."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Self

from starling.core.secrets.known import HIDDEN, KnownSecrets, settings_secrets
from starling.core.secrets.look_alikes import mask_keys
from starling.core.settings.schema import Settings

_SHORTEST: Final = 6  # shorter secrets would match harmless words
_AUTHORIZATION = re.compile(r"""(authorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic)\s+)?)[^\s"',;]+""", re.IGNORECASE)
_BEARER = re.compile(r"\b(bearer\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_KEY = re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}")
_SECRET_NAME = re.compile(r"(?:PASSW(?:OR)?D|PASS|SECRET|TOKEN|KEY|CREDENTIALS?|AUTHORIZATION)S?$", re.IGNORECASE)
_PASSWORD = re.compile(r"(://[^\s:/@]*:)[^\s@/]+(?=@)")


class Redaction:
    """Replaces secrets in texts that people read."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._known = KnownSecrets((("", secret) for secret in secrets), shortest=_SHORTEST)

    @classmethod
    def of(cls, settings: Settings, variables: Mapping[str, str] = MappingProxyType({})) -> Self:
        """Return the redaction of all secrets of the settings, and of passwords in addresses.

        `variables` are those of an environment: a value counts as a secret if its name says so.
        """
        named = (value for name, value in variables.items() if is_secret_name(name))
        return cls((*settings_secrets(settings).values(), *named))

    def __call__(self, text: str) -> str:
        """Return `text` with `***` where a secret was."""
        text = _AUTHORIZATION.sub(rf"\1{HIDDEN}", mask_keys(self._known.mask(text)))
        text = _BEARER.sub(rf"\1{HIDDEN}", text)
        text = _PASSWORD.sub(rf"\1{HIDDEN}", text)
        return _KEY.sub(HIDDEN, text)


def is_secret_name(name: str) -> bool:
    """Return whether the name of a variable or a header says that its value is secret."""
    return bool(_SECRET_NAME.search(name))
