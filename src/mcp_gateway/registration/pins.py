"""What a server offers against what was approved: one decision for each tool, and the difference as text. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import unified_diff
from typing import Any, Final, Literal, cast

from mcp_gateway.configuration.options import PinPolicy
from mcp_gateway.registration.listed_tools import definition_hash
from starling.core.json import JsonObject, strings_in
from starling.core.text_screening import hidden, visible

BY_POLICY: Final = "policy"
"""Who approved what the policy `follow` let in. No person has seen it, so a server-wide effect doesn't hold."""

_TEXTS: Final = frozenset({"description", "title"})
_SCHEMA_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES: Final = frozenset({"enum", "const", "default", "examples", "required"})
_GONE: Final = "Its server doesn't offer it any more."
_NEW: Final = "It appeared after its server was approved."
_MOVED: Final = "Its server was replaced over the API: nobody has approved it there."
_WAITS: Final = "Its server was added over the API: nobody has approved it yet."


@dataclass(frozen=True, slots=True)
class Pin:
    """What was approved of a tool and what is offered, as hashes of definitions, None where there is none.

    Calls reach `approved` tools only. `by` is who or what made that so; `seen_at` when the row last changed.
    """

    approved_hash: str | None
    offered_hash: str | None
    state: Literal["approved", "quarantined", "gone"]
    reason: str = ""
    by: str = ""
    seen_at: datetime | None = field(default=None, compare=False)

    @property
    def is_followed(self) -> bool:
        """Whether the policy alone approved it."""
        return self.state == "approved" and self.by == BY_POLICY


type Pins = Mapping[str, Pin]
"""By the name of a tool, as agents and models see it."""


@dataclass(frozen=True, slots=True)
class Occasion:
    """How a listing came about: at `first` sight of the server, from which `source`, or on an open session (`live`).

    A server is `moved` where the API gave its name to another address or command: earlier approvals were of another
    server, and hold only under the policy `follow`.

    On an open session a quarantine stays, whatever the server offers next: only a person, or a listing that one asked
    for, ends it.
    """

    policy: PinPolicy
    source: str
    first: bool = False
    live: bool = False
    moved: bool = False

    @property
    def keeps_approvals(self) -> bool:
        """Whether what was approved before counts."""
        return not self.moved or self.policy == "follow"


def judged(
    pins: Pins, offered: Mapping[str, JsonObject], approved: Mapping[str, JsonObject], occasion: Occasion
) -> dict[str, Pin]:
    """Return the pins after a server has offered these definitions; `approved` are those that pins approve."""
    if not occasion.keeps_approvals:
        return {name: _moved(definition_hash(offer), hidden(strings_in(offer))) for name, offer in offered.items()}
    found = {
        name: _judged(pins.get(name), definition, approved.get(name), occasion) for name, definition in offered.items()
    }
    return found | {
        name: replace(pin, offered_hash=None, state="gone", reason=_GONE)
        for name, pin in pins.items()
        if name not in offered and pin.approved_hash
    }


def _judged(pin: Pin | None, offered: JsonObject, approved: JsonObject | None, occasion: Occasion) -> Pin:
    offered_hash = definition_hash(offered)
    if pin is None:
        return _at_first_sight(offered, offered_hash, occasion)
    if pin.approved_hash == offered_hash:
        stays = occasion.live and pin.state == "quarantined"
        return pin if stays else Pin(offered_hash, offered_hash, "approved", by=pin.by)
    if pin.state == "quarantined" and pin.offered_hash == offered_hash:
        return pin
    if reason := hidden(strings_in(offered)):
        return Pin(pin.approved_hash, offered_hash, "quarantined", reason)
    if occasion.policy == "text" and approved is not None and shape_of(approved) == shape_of(offered):
        return Pin(offered_hash, offered_hash, "approved", by=pin.by)
    if occasion.policy == "follow":
        return Pin(offered_hash, offered_hash, "approved", by=BY_POLICY)
    if approved is None:
        return Pin(pin.approved_hash, offered_hash, "quarantined", _NEW)
    keys = sorted(key for key in approved.keys() | offered.keys() if approved.get(key) != offered.get(key))
    reason = f"Its definition was changed by its server: {', '.join(keys)}."
    return Pin(pin.approved_hash, offered_hash, "quarantined", reason)


def without_approvals(pins: Pins) -> dict[str, Pin]:
    """Return the pins of a server that has moved and can't be listed: what it offers next waits."""
    return {name: _moved(pin.offered_hash) for name, pin in pins.items()}


def _moved(offered_hash: str | None, reason: str = "") -> Pin:
    return Pin(None, offered_hash, "quarantined", reason or _MOVED)


def _at_first_sight(offered: JsonObject, offered_hash: str, occasion: Occasion) -> Pin:
    if reason := hidden(strings_in(offered)):
        return Pin(None, offered_hash, "quarantined", reason)
    if occasion.first and occasion.source == "api":
        return Pin(None, offered_hash, "quarantined", _WAITS)
    if occasion.first:
        return Pin(offered_hash, offered_hash, "approved", by=occasion.source)
    if occasion.policy == "follow":
        return Pin(offered_hash, offered_hash, "approved", by=BY_POLICY)
    return Pin(None, offered_hash, "quarantined", _NEW)


def shape_of(definition: Mapping[str, Any]) -> Any:
    """Return a definition without the descriptions and titles in it and in its schemas."""
    return _without_texts("", definition)


def _without_texts(key: str, value: Any) -> Any:
    if key in _VALUES:
        return value
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        if key in _SCHEMA_MAPS:
            return {name: _without_texts("", member) for name, member in members.items()}
        return {
            name: _without_texts(name, member)
            for name, member in members.items()
            if name not in _TEXTS or not isinstance(member, str)
        }
    if isinstance(value, list):
        return [_without_texts("", member) for member in cast("list[Any]", value)]
    return value


def definition_diff(approved: JsonObject | None, offered: JsonObject | None) -> str:
    """Return a unified diff of the canonical definitions, all lines of one where there is no other.

    Characters that aren't shown, or that change how others are shown, are escaped.
    """
    lines = unified_diff(_lines(approved), _lines(offered), "approved", "offered", lineterm="", n=3)
    return "\n".join(lines)


def _lines(definition: JsonObject | None) -> list[str]:
    if definition is None:
        return []
    text = json.dumps(definition, indent=2, sort_keys=True, ensure_ascii=False)
    return [*map(visible, text.split("\n"))]
