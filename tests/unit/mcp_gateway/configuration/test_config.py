"""The `mcpServers` document: what is understood, what is refused and how."""

import json
import timeit
from pathlib import Path
from typing import Any

import pytest

from mcp_gateway.configuration.servers import (
    RemoteServer,
    StdioServer,
    checked_server,
    parse_config,
    read_config,
    server_of,
    without_comments,
)
from mcp_gateway.configuration.variable_expansion import resolve
from starling.core.errors import ConfigurationError, ServerUnavailableError
from starling.core.tool_calls import Effect


def document(**servers: Any) -> str:
    return json.dumps({"mcpServers": servers})


def test_document_with_stdio_and_remote_servers_is_read() -> None:
    config = parse_config(
        document(
            time={"command": "mcp-server-time", "args": ["--local-timezone", "UTC"], "env": {"A": "1"}, "cwd": "/"},
            remote={"type": "streamable-http", "url": "http://localhost/mcp", "headers": {"X": "1"}},
            events={"type": "sse", "url": "http://localhost/sse"},
            bare={"url": "http://localhost/mcp"},
        ),
        "file",
    )

    assert config == {
        "time": StdioServer(command="mcp-server-time", args=("--local-timezone", "UTC"), env={"A": "1"}, cwd="/"),
        "remote": RemoteServer(url="http://localhost/mcp", headers={"X": "1"}),
        "events": RemoteServer(type="sse", url="http://localhost/sse"),
        "bare": RemoteServer(url="http://localhost/mcp"),
    }


def test_unknown_keys_of_other_mcp_hosts_are_ignored() -> None:
    config = parse_config(document(a={"command": "x", "autoApprove": ["y"], "gallery": True}), "file")

    assert config["a"].hash == parse_config(document(a={"command": "x"}), "file")["a"].hash


def test_disabled_server_is_left_out() -> None:
    assert parse_config(document(a={"command": "x", "disabled": True}), "file") == {}


def test_hash_is_the_same_for_another_order_of_keys_and_differs_for_other_values() -> None:
    one = server_of({"command": "x", "args": ["${TOKEN}"], "env": {"A": "1", "B": "2"}})
    other = server_of({"env": {"B": "2", "A": "1"}, "type": "stdio", "args": ["${TOKEN}"], "command": "x"})
    changed = server_of({"command": "x", "args": ["${TOKEN2}"], "env": {"A": "1", "B": "2"}})

    assert one.hash == other.hash != changed.hash


@pytest.mark.parametrize(
    "given",
    [
        {"command": "x", "args": ["a"], "x-starling": {"effect": "read", "tools": {"t": {"side_effect_free": True}}}},
        {"type": "sse", "url": "http://x", "headers": {"A": "${B}"}},
    ],
)
def test_stored_config_reads_back_equal(given: dict[str, Any]) -> None:
    config = server_of(given)

    assert server_of(json.loads(json.dumps(config.document))) == config


def test_effect_of_a_tool_is_the_configured_one_and_unsafe_by_default() -> None:
    tools = {"look": {"side_effect_free": True}, "put": {"effect": "idempotent"}, "drop": {"effect": "unsafe"}}
    unmarked = server_of({"command": "x", "x-starling": {"tools": tools}}).options
    readers = server_of({"command": "x", "x-starling": {"effect": "read", "tools": {"drop": tools["drop"]}}}).options

    effects = [unmarked.effect_of(tool) for tool in ("look", "put", "drop", "other")]
    assert effects == [Effect.READ, Effect.IDEMPOTENT, Effect.UNSAFE, Effect.UNSAFE]
    assert [readers.effect_of(tool) for tool in ("drop", "other")] == [Effect.UNSAFE, Effect.READ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"mcpServers": {\n  "a": {"command": "x" 1}\n}}', "line 2, column 24"),
        ("[]", "mcpServers: must be an object"),
        ('{"servers": {}}', "mcpServers: must be an object"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "'a' is used twice"),
        (document(**{"a b": {"command": "x"}}), "mcpServers.a b: a server's name has"),
        (document(**{"x" * 49: {"command": "x"}}), "a server's name has"),
        (document(a=5), "mcpServers.a: must be an object"),
        (document(a={}), "mcpServers.a.command: is missing"),
        (document(a={"comand": "x"}), "command: is missing (did you mean command instead of comand?)."),
        (
            document(a={"type": "execution_service", "url": "http://x?tenant=1"}),
            "a.url: leave out what follows `?` or `#`",
        ),
        (document(a={"type": "execution_service", "url": "http://x/#1"}), "a.url: leave out what follows `?` or `#`"),
        (document(a={"type": "http", "URL": "http://x"}), "url: is missing (did you mean url instead of URL?)."),
        ('{"mcpServer": {}}', "did you mean mcpServers instead of mcpServer"),
        (document(a={"command": "x", "args": ["y", 5]}), "mcpServers.a.args[1]: "),
        (document(a={"command": "x", "args": 5}), "mcpServers.a.args: must be a list"),
        (document(a={"type": "carrier-pigeon", "url": "x"}), "mcpServers.a.type: "),
        (
            document(a={"command": "x", "x-starling": {"effects": "read"}}),
            "mcpServers.a.x-starling.effects: there is no such key",
        ),
        (document(a={"command": "x", "x-starling": {"timeout": 0}}), "mcpServers.a.x-starling.timeout: "),
        (
            document(
                a={"command": "x", "x-starling": {"tools": {"t": {"effect": "unsafe", "side_effect_free": True}}}}
            ),
            "mcpServers.a.x-starling.tools.t: ",
        ),
        (
            document(a={"command": "x", "x-starling": {"tools": {"t": {"reconcile": "t"}}}}),
            "t can't reconcile itself",
        ),
        ("[" * 100_000, "can't be read: maximum recursion depth"),
        (f'{{"mcpServers": {"9" * 5_000}}}', "can't be read: Exceeds the limit"),
        *(
            (f'{{"mcpServers": {{"a": {{"command": "x", {more}}}}}}}', "mcpServers.a: a text in it has a NUL or half")
            for more in (
                r'"args": ["a\u0000b"]',
                r'"args": ["\ud800"]',
                r'"x-starling": {"description": "\udfff"}',
                r'"x-starling": {"tenants": ["\u0000"]}',
                '"x-starling": {"timeout": 1e999}',
                f'"x-starling": {{"max_sessions": {"9" * 30}}}',
            )
        ),
    ],
)
def test_error_in_a_document_names_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_config(text, "servers.json")

    assert said in caught.value.message
    assert "servers.json" in caught.value.message
    assert caught.value.remedy


def test_server_with_a_text_that_no_process_could_be_given_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a text in it has 100,001 characters"):
        parse_config(json.dumps({"mcpServers": {"a": {"command": "x", "args": ["x" * 100_001]}}}), "it")


def test_long_json_is_read_without_a_search_for_comments() -> None:
    """One search in 1.5 MB held all other threads up for half a second."""
    text = json.dumps({"mcpServers": {"a": {"command": "x", "args": ["TURN," * 20_000] * 15}}})

    searched = min(timeit.repeat(lambda: without_comments(text), number=1, repeat=3))
    read = min(timeit.repeat(lambda: parse_config(text, "it"), number=1, repeat=3))

    assert read < searched / 2


def test_several_errors_in_a_document_are_all_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_config(document(a={}, b={"command": 5}, **{"a b": {"args": 7}}), "file")

    for place in ("a.command", "b.command", "a b", "a b.command", "a b.args"):
        assert f"mcpServers.{place}: " in caught.value.message


def test_missing_file_names_the_setting_of_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"can't be read.*STARLING_MCP_CONFIG"):
        read_config(tmp_path / "none.json")


def test_file_in_another_encoding_is_refused_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    file.write_bytes(document(a={"command": "x"}).encode("utf-16"))

    with pytest.raises(ConfigurationError, match=r"not UTF-8: .* at byte 0.*Save it in the encoding UTF-8"):
        read_config(file)


def test_file_with_byte_order_mark_is_read(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    file.write_text(document(a={"command": "x"}), encoding="utf-8-sig")

    assert read_config(file).keys() == {"a"}


def test_variables_are_expanded_for_use_and_stored_unexpanded() -> None:
    config = server_of(
        {"command": "${HOME}/x", "args": ["${KEY}", "${NONE:-d:e}", "${EMPTY:-f}", "$KEY"], "env": {"T": "a-${KEY}"}}
    )

    resolved = resolve("a", config, {"HOME": "/h", "KEY": "k", "EMPTY": ""}).config

    assert isinstance(resolved, StdioServer)
    assert resolved.command == "/h/x"
    assert resolved.args == ("k", "d:e", "f", "$KEY")
    assert resolved.env == {"HOME": "/h", "T": "a-k"}
    assert "${KEY}" in json.dumps(config.document)


def test_variables_in_headers_and_address_are_expanded() -> None:
    config = server_of({"url": "http://${H}/mcp", "headers": {"Authorization": "Bearer ${T}"}})

    resolved = resolve("a", config, {"H": "host", "T": "token"}).config

    assert resolved == RemoteServer(url="http://host/mcp", headers={"Authorization": "Bearer token"})


def test_server_inherits_only_harmless_environment_variables() -> None:
    ours = {"PATH": "/bin", "HOME": "/h", "DATABASE_URL": "postgresql://u:p@h", "OPENAI_API_KEY": "sk"}

    resolved = resolve("a", server_of({"command": "x"}), ours).config

    assert isinstance(resolved, StdioServer)
    assert resolved.env == {"PATH": "/bin", "HOME": "/h"}


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("${TOKEN}", "environment variable TOKEN is not set"),
        ("${secret:github}", "'github'.*not available yet"),
        ("${input:key}", "can't be understood"),
    ],
)
def test_variable_that_cannot_be_resolved_is_named(reference: str, said: str) -> None:
    config = server_of({"command": "x", "env": {"KEY": reference}})

    with pytest.raises(ServerUnavailableError, match=said):
        resolve("a", config, {})


def test_values_of_variables_are_masked_in_messages() -> None:
    config = server_of({"command": "x", "args": ["${TOKEN}", "${DEBUG}"], "env": {"PLACE": "harbour"}})

    resolved = resolve("a", config, {"TOKEN": "hunter22", "DEBUG": "1"})

    assert resolved.mask("1 login with hunter22 at harbour failed") == "1 login with *** at harbour failed"


@pytest.mark.parametrize(
    ("name", "server", "wrong"),
    [
        ("bad name", {"command": "x"}, "'bad name' isn't right: a server's name has 1 to 48 letters"),
        ("time", {"command": ""}, "'time' isn't right: command: must not be empty"),
    ],
)
def test_error_in_a_server_of_the_command_line_names_no_file(name: str, server: Any, wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=wrong) as caught:
        checked_server(name, server)

    assert "file" not in str(caught.value)
