"""Effects that annotations suggest: for which tools, which ones, and what is written of them."""

from typing import Any

import pytest

from mcp_gateway.configuration.effect_suggestions import EffectSuggestion, suggested_effects, with_effects
from mcp_gateway.configuration.options import ServerOptions
from mcp_gateway.configuration.servers import server_of
from starling.core.tool_calls import Effect


@pytest.mark.parametrize(
    ("annotations", "effect", "reason"),
    [
        ({"readOnlyHint": True}, Effect.READ, "readOnlyHint true"),
        ({"readOnlyHint": True, "destructiveHint": True}, Effect.UNSAFE, "readOnlyHint true, destructiveHint true"),
        (
            {"destructiveHint": False, "idempotentHint": True},
            Effect.IDEMPOTENT,
            "destructiveHint false, idempotentHint true",
        ),
        ({"idempotentHint": True}, Effect.UNSAFE, "idempotentHint true"),
        ({"destructiveHint": False}, Effect.UNSAFE, "destructiveHint false"),
        ({"readOnlyHint": "true"}, Effect.UNSAFE, "no annotations"),
        (["readOnlyHint"], Effect.UNSAFE, "no annotations"),
        (None, Effect.UNSAFE, "no annotations"),
    ],
)
def test_effect_follows_the_annotations_where_they_agree(annotations: Any, effect: Effect, reason: str) -> None:
    found = suggested_effects({"do": {"name": "do", "annotations": annotations}}, ServerOptions())

    assert found == [EffectSuggestion("do", effect, reason)]


@pytest.mark.parametrize(
    "options",
    [{"effect": "read"}, {"tools": {"do": {"effect": "unsafe"}}}, {"tools": {"do": {"side_effect_free": True}}}],
    ids=["server", "tool", "side-effect-free"],
)
def test_effect_that_is_set_is_not_proposed_again(options: dict[str, Any]) -> None:
    tools: Any = {"do": {"annotations": {"readOnlyHint": True}}}

    assert suggested_effects(tools, ServerOptions.model_validate(options)) == []


def test_written_effects_keep_the_other_settings_and_change_the_hash() -> None:
    config = server_of(
        {
            "command": "shop",
            "x-starling": {"timeout": 3, "tools": {"do": {"approval": "always"}, "go": {"effect": "read"}}},
        }
    )

    changed = with_effects(config, [EffectSuggestion("do", Effect.IDEMPOTENT, "")])

    assert changed.document["x-starling"] == {
        "timeout": 3,
        "tools": {"do": {"approval": "always", "effect": "idempotent"}, "go": {"effect": "read"}},
    }
    assert changed.hash != config.hash
    assert with_effects(config, []).hash == config.hash
