"""Texts that look like keys, replaced where people read, never in what a run replays; redaction of logs and skills."""

import re
import string
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Self

from starling.core.json import Json, strings_in, with_strings
from starling.core.secrets.known import HIDDEN, KnownSecrets, settings_secrets
from starling.core.settings.schema import Settings

_LONGEST: Final = 16_384  # characters that are held back for the rest of a key
_BY_CHARACTER: Final = {
    "_": (
        *("sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", "gho_", "ghp_", "ghr_", "ghs_", "ghu_"),
        *("github_pat_", "npm_", "hf_", "shpat_", "dop_v1_"),
    ),
    "-": ("sk-", "pk-", "rk-", "glpat-", "xox", "pypi-", "-----BEGIN "),
    ".": ("eyJ", "SG.", "ya29."),
    "A": ("AKIA", "ASIA", "AIza"),
}
"""Beginnings of keys by a character that each of these keys has. They are as long as can be: `task_id` has none."""

_MARKERS: Final = tuple(marker for markers in _BY_CHARACTER.values() for marker in markers)
_KEY: Final = re.compile(
    r"(?<![\w-])(?:"
    r"(?:sk|pk|rk)-(?=[\w-]{0,400}[0-9])[\w-]{16,}|(?:sk|rk)_(?:live|test)_\w{10,}|whsec_\w{16,}"
    r"|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])"
    r"|xox[abeoprs]-[\w-]{10,}|AIza[\w-]{30,}|npm_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{30,}|pypi-[\w-]{40,}"
    r"|SG\.[\w-]{16,}\.[\w-]{16,}|ya29\.[\w-]{20,}|shpat_[a-f0-9]{30,}|dop_v1_[a-f0-9]{40,}"
    r"|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"
    r")|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]*+(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"
)
_SHORTEST: Final = 15  # characters of a key
_OF_KEYS: Final = f"{string.ascii_letters}{string.digits}_.-"
_PEM_END: Final = re.compile(r"-----END [A-Z ]{0,30}PRIVATE KEY-----")
_PEM: Final = "-----BEGIN "
_SHORTEST_KNOWN: Final = 6  # shorter secrets would match harmless words
_AUTHORIZATION = re.compile(r"""(authorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic)\s+)?)[^\s"',;]+""", re.IGNORECASE)
_BEARER = re.compile(r"\b(bearer\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_SHORT_KEY = re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}")
_SECRET_NAME = re.compile(r"(?:PASSW(?:OR)?D|PASS|SECRET|TOKEN|KEY|CREDENTIALS?|AUTHORIZATION)S?$", re.IGNORECASE)
_PASSWORD = re.compile(r"(://[^\s:/@]*:)[^\s@/]+(?=@)")


def may_have_keys(text: str) -> bool:
    """Whether `mask_keys` may change a text, or one of the strings in the JSON of a value."""
    if len(text) < _SHORTEST:
        return False
    for character, markers in _BY_CHARACTER.items():
        if character in text:
            for marker in markers:  # `any` takes longer
                if marker in text:
                    return True
    return False


def mask_keys(text: str) -> str:
    """Return a text with `***` where something looked like a key."""
    return _KEY.sub(HIDDEN, text) if may_have_keys(text) else text


def mask_keys_in(value: Json) -> Json:
    """Return a JSON value with `***` where something looked like a key."""
    strings = list(strings_in(value))
    masked = [mask_keys(text) for text in strings]
    return with_strings(value, iter(masked)) if masked != strings else value


class StreamedText:
    """A text that comes in pieces, masked: the end is held back while it may be the beginning of a key."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what can be shown after a further piece."""
        text = self._held + piece
        end = len(text) if len(text) > _LONGEST else _unfinished(text)
        self._held = text[end:]
        return mask_keys(text[:end])

    def end(self) -> str:
        """Return the rest."""
        text, self._held = self._held, ""
        return mask_keys(text)


def _unfinished(text: str) -> int:
    """Return where a key may begin that isn't complete; the length of the text if none does."""
    begun = text.rfind(_PEM)
    if begun >= 0 and not _PEM_END.search(text, begun):
        return begun
    start = len(text.rstrip(_OF_KEYS))
    for part in text[start:].split("."):
        if part and any(part.startswith(marker) or marker.startswith(part) for marker in _MARKERS):
            return start
        start += len(part) + 1
    return len(text)


class Redaction:
    """Replaces secrets in texts that people read."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._known = KnownSecrets((("", secret) for secret in secrets), shortest=_SHORTEST_KNOWN)

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
        return _SHORT_KEY.sub(HIDDEN, text)


def is_secret_name(name: str) -> bool:
    """Return whether the name of a variable or a header says that its value is secret."""
    return bool(_SECRET_NAME.search(name))
