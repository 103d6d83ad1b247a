"""Which names tools may have, and what agents and models call them."""

import pytest

from mcp_gateway.registration.tool_names import alias_of, collisions, name_fault


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("Users Tool", "Users_Tool"), ("!mysql", "mysql"), ("!export-db", "export-db"),
        ("get  rss feed ", "get_rss_feed"),
        ("send_email", "send_email"), ("a.b/c:d@1+2", "a.b/c:d@1+2"), ("高德天气查询助手", "高德天气查询助手"),
        ("长亭 IP 情报查询", "长亭_IP_情报查询"), ("café", "café"), ("a" * 128, "a" * 128),
    ],
)  # fmt: skip
def test_usable_name_has_its_alias(name: str, alias: str) -> None:
    assert (name_fault(name), alias_of(name)) == ("", alias)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (None, "no usable name"), ("", "no usable name"), ("a\0", "no usable name"), ("a" * 129, "129 characters"),
        ("a b;c", ";"), ("a`id`", "`"), ("$(id)", "$, (, )"), ("a|b", "|"), ('a"b', '"'), ("a'b", "'"), ("a\\b", "\\"),
        ("a\nb", "U+000A"), ("a\u202eb", "U+202E"), ("!!", "no letter"), ("transfer_to_supervisor", "reserved"),
        ("Transfer to billing", "reserved"), ("continue", "reserved"), ("find_tools", "reserved"),
        ("s\u0435nd_email", "only look like Latin"), ("\uff53end_email", "only look like Latin"),
    ],
)  # fmt: skip
def test_refused_name_has_a_reason(name: object, reason: str) -> None:
    assert reason in name_fault(name)


@pytest.mark.parametrize(
    ("names", "approved", "refused"),
    [
        (["send_email", "Send_Email"], "", {1}),
        (["Send_Email", "send_email"], "send_email", {0}),
        (["send_email", "send_emai1"], "", {1}),
        (["send_email", "5end_ernail"], "", {1}),
        (["send email", "send_email"], "", {0}),
        (["search", "search"], "search", {0, 1}),
        (["get_item", "get_items", "set_item"], "", set[int]()),
        (["list_v1", "list_v2", "list_v10"], "", set[int]()),
    ],
)  # fmt: skip
def test_of_names_that_look_alike_one_is_kept(names: list[str], approved: str, refused: set[int]) -> None:
    assert collisions(names, approved.split()).keys() == refused
