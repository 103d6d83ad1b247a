"""What is found wrong with a team spec."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from starling.core.errors import InvalidRequestError

MOST_FINDINGS: Final = 50
"""How many findings a document has at most: to name what was meant takes time for each."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a team spec: where (`members[1].tools[0]`), by which rule, why, and what to do."""

    path: str
    rule: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        return f"{place}{self.reason} {self.remedy}".rstrip()


class TeamInvalidError(InvalidRequestError):
    """A team spec can't be used as it is; `findings` say why."""

    code: ClassVar[str] = "team_invalid"

    def __init__(self, findings: Sequence[Finding], message: str = "The team spec is wrong.") -> None:
        super().__init__(message, "; ".join(map(str, findings)))
        self.findings = tuple(findings)
