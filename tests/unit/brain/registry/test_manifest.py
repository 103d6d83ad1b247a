"""Manifests and stars that a later version of the platform stored."""

from typing import Any

from brain.registry.manifest import Manifest
from starling.core.json import digest
from starling.core.teams.stars import StarSpec

_PIN = {"hash": "p", "effect": "read", "later_pin": 1}
_SERVER = {"config_hash": "c", "source": "file", "state": "ready", "description": "", "tools": {"now": _PIN}}
_MANIFEST: dict[str, Any] = {
    "servers": {"time": {**_SERVER, "tenants": [], "later_server": [1]}},
    "builtins": ["coder"],
    "prompts": {},
    "agents": {"red/a": {"tenant": "red", "name": "a", "hash": "h", "later_agent": {"x": None}}},
    "teams": {},
    "later": {"kind": "new"},
}


def test_manifest_with_unknown_fields_is_read_and_keeps_them_and_its_hash() -> None:
    manifest = Manifest.model_validate(_MANIFEST)

    assert manifest.servers["time"].tools["now"].hash == "p"
    assert manifest.model_dump(mode="json") == _MANIFEST
    assert manifest.hash == digest(_MANIFEST)


def test_manifest_made_of_one_with_unknown_fields_keeps_those_of_what_it_does_not_change() -> None:
    manifest = Manifest.model_validate(_MANIFEST).model_copy(update={"builtins": ("coder", "generalist")})

    assert manifest.model_dump(mode="json") == {**_MANIFEST, "builtins": ["coder", "generalist"]}


def test_star_with_unknown_fields_keeps_its_hash() -> None:
    stored = {**StarSpec(name="crew").model_dump(mode="json"), "later": True}

    assert StarSpec.model_validate(stored).hash == digest(stored)
