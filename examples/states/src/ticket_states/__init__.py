"""A state for tickets of a help desk, and a policy that shows a model the user's messages alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import starling


@dataclass(slots=True, frozen=True)
class TicketState(starling.BaseState):
    """A ticket that belongs to the conversation."""

    ticket: str
    priority: int | None = None

    __version__: ClassVar[int] = 1


@starling.register_policy("questions")
def questions(messages: Sequence[dict[str, Any]], **_: object) -> list[dict[str, Any]]:
    """Show what the user said."""
    return [message for message in messages if message["role"] == "user"]
