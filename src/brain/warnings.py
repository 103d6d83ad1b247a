"""What goes wrong with models, told once for as long as it stays so."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from starling.core.llm import ModelRequest, ModelRole


@dataclass(frozen=True, slots=True)
class ModelWarnings:
    """What the models of one run had trouble with, at the last answer of each role (or model that was asked for).

    A model that is skipped for a minute is skipped by every call of that minute: its reader is told of the first.
    """

    _last: dict[tuple[ModelRole, str | None], Sequence[str]] = field(
        default_factory=dict[tuple[ModelRole, str | None], Sequence[str]]
    )

    def new_warnings(self, request: ModelRequest, warnings: Sequence[str]) -> Iterable[str]:
        """Return those warnings of an answer that no last answer had."""
        known = {text for last in self._last.values() for text in last}
        self._last[request.role, request.model] = warnings
        return [text for text in warnings if text not in known]
