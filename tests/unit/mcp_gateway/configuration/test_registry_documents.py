"""Documents of the MCP registry as configurations of servers, with pinned versions."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_gateway.configuration.registry_documents import RegistryEntry, read_registry_documents
from starling.core.errors import ConfigurationError

DOCUMENTS = Path(__file__).parents[3] / "data/registry_documents"
STDIO = {"type": "stdio"}


def entry(document: Any, *, name: str | None = None, remote: bool = False) -> RegistryEntry:
    [found] = read_registry_documents(json.dumps(document), "The document", name=name, remote=remote)
    return found


def of_package(**fields: Any) -> RegistryEntry:
    """Return the entry of a package, in the form of 2025-12-11."""
    package = {"registryType": "npm", "identifier": "shop-mcp", "version": "1.2.3", "transport": STDIO, **fields}
    return entry({"name": "com.example/shop", "version": "1.2.3", "packages": [package]})


def of_remote(**fields: Any) -> RegistryEntry:
    remote = {"type": "streamable-http", "url": "https://shop.example/mcp", **fields}
    return entry({"name": "com.example/shop", "version": "1.2.3", "remotes": [remote]})


@pytest.mark.parametrize(
    ("file", "remote", "config", "required"),
    [
        (
            "brave-search.json",
            False,
            {
                "command": "npx",
                "args": ["-y", "@brave/brave-search-mcp-server@2.1.3"],
                "env": {"BRAVE_API_KEY": "${BRAVE_API_KEY}"},
            },
            {"BRAVE_API_KEY": "Your API key for the service"},
        ),
        ("exa.json", False, {"command": "npx", "args": ["-y", "exa-mcp-server@3.2.0"]}, {}),
        (
            "exa.json",
            True,
            {
                "type": "sse",
                "url": "https://mcp.exa.ai/mcp?tools=web_search_exa,web_search_advanced_exa,crawling_exa",
            },
            {},
        ),
        (
            "with-remote.json",
            False,
            {
                "type": "http",
                "url": "https://api.example.com/mcp",
                "headers": {"Authorization": "${REMOTE_WEATHER_AUTHORIZATION}"},
            },
            {"REMOTE_WEATHER_AUTHORIZATION": ""},
        ),
        (
            "filesystem-2025-07-09.json",
            False,
            {
                "command": "npx",
                "args": ["-y", "@modelcontextprotocol/server-filesystem@1.0.2", "/Users/username/Desktop"],
                "env": {"LOG_LEVEL": "info"},
            },
            {},
        ),
    ],
)
def test_published_document_becomes_a_pinned_configuration(
    file: str, remote: bool, config: dict[str, Any], required: dict[str, str]
) -> None:
    [found] = read_registry_documents((DOCUMENTS / file).read_text(), file, remote=remote)

    assert (found.fault, found.config, found.required) == ("", config, required)


@pytest.mark.parametrize("schema", ["2025-07-09", "2025-09-29", "2025-10-17", "2025-12-11"])
def test_forms_of_all_schemas_lead_to_the_same_configuration(schema: str) -> None:
    package: dict[str, Any] = {
        "registryType": "pypi",
        "registryBaseUrl": "https://www.pypi.example",
        "identifier": "weather-mcp",
        "version": "0.5.0",
        "runtimeHint": "uvx",
        "transport": STDIO,
        "packageArguments": [{"type": "positional", "valueHint": "city", "isRequired": True}],
        "environmentVariables": [{"name": "WEATHER_KEY", "isRequired": True, "isSecret": True}, {"name": "UNITS"}],
    }
    document: dict[str, Any] = {"name": "io.github.example/weather", "version": "0.5.0", "packages": [package]}
    if schema == "2025-07-09":
        old = json.dumps(package)
        for new, former in (
            ("registryType", "registry_type"),
            ("registryBaseUrl", "registry_base_url"),
            ("runtimeHint", "runtime_hint"),
            ("packageArguments", "package_arguments"),
            ("environmentVariables", "environment_variables"),
            ("valueHint", "value_hint"),
            ("isRequired", "is_required"),
            ("isSecret", "is_secret"),
        ):
            old = old.replace(new, former)
        document = {"name": document["name"], "version_detail": {"version": "0.5.0"}, "packages": [json.loads(old)]}
        del document["packages"][0]["transport"]

    found = entry(
        {"$schema": f"https://static.modelcontextprotocol.io/schemas/{schema}/server.schema.json", **document}
    )

    assert found.config == {
        "command": "uvx",
        "args": ["weather-mcp==0.5.0", "${WEATHER_CITY}"],
        "env": {"WEATHER_KEY": "${WEATHER_KEY}"},
    }
    assert found.document == "io.github.example/weather 0.5.0"
    assert list(found.required) == ["WEATHER_CITY", "WEATHER_KEY"]


def test_address_of_2025_07_09_has_its_type_under_another_name() -> None:
    found = entry({"name": "a/b", "remotes": [{"transport_type": "sse", "url": "https://shop.example/sse"}]})

    assert found.config == {"type": "sse", "url": "https://shop.example/sse"}


def test_answers_of_a_registry_and_lists_are_read() -> None:
    one = {"name": "a/one", "remotes": [{"type": "sse", "url": "https://one.example/"}]}
    two = {"name": "a/two", "remotes": [{"type": "sse", "url": "https://two.example/"}]}
    wrapped = {"server": two, "_meta": {"io.modelcontextprotocol.registry/official": {"status": "active"}}}

    for text in ([one, wrapped], {"servers": [wrapped, {"server": one}], "metadata": {"count": 2}}):
        found = read_registry_documents(json.dumps(text), "x")
        assert sorted(each.name for each in found) == ["one", "two"]


@pytest.mark.parametrize("kind", ["npm", "pypi"])
@pytest.mark.parametrize(
    "version",
    [
        *("latest", "next", "^1.2.3", "~1.2", ">=1.0", "1.x", "1.*", "*", "", "1.2.3 || 2.0.0"),
        *("1.2.0 --registry=http://evil.example", "http://evil.example/x.tgz", "npm:evil@1.0.0", "1.2.0\n"),
    ],
)
def test_version_that_is_not_pinned_is_refused(kind: str, version: str) -> None:
    found = of_package(registryType=kind, version=version)

    assert "version" in found.fault
    assert found.config == {}


@pytest.mark.parametrize(
    "identifier",
    [
        *("--package=evil", "-c", "git+ssh://evil.example/x", "evil/x", "../evil", "/tmp/evil", "file:evil"),
        *("notes-mcp@9.9.9", "notes-mcp; touch x", "${HOME}", "notes-mcp\nevil", "", None),
    ],
)
def test_identifier_that_is_not_the_name_of_a_package_is_refused(identifier: str | None) -> None:
    found = of_package(identifier=identifier)

    assert (bool(found.fault), found.config) == (True, {})


@pytest.mark.parametrize(
    "name",
    [
        *("npm_config_registry", "Npm_Config_Registry", "npm_config_ignore_scripts", "NPM_CONFIG_USERCONFIG"),
        *("NODE_PATH", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PATH", "HOME", "UV_DEFAULT_INDEX"),
        *("UV_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PYTHONPATH", "PYTHONSTARTUP", "HTTP_PROXY", "https_proxy"),
        *("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "BASH_ENV", "XDG_CONFIG_HOME", "PREFIX", "proxy", "A=B", ""),
    ],
)
def test_variable_that_leads_elsewhere_is_refused_by_its_name(name: str) -> None:
    for more in ({"value": "http://evil.example"}, {"isRequired": True}, {"default": "http://evil.example"}):
        found = of_package(environmentVariables=[{"name": name, **more}])
        assert (name in found.fault, bool(found.fault), found.config) == (True, True, {})


def test_incomplete_version_is_a_range_of_npm_and_one_version_of_pypi() -> None:
    assert "no pinned version" in of_package(version="1.2").fault
    assert of_package(registryType="pypi", version="1.2").config["args"] == ["shop-mcp==1.2"]
    for version in ("1.0rc1", "2.0.post1", "1!2.0", "1.0.dev3", "1.0-beta-2.post3.dev4"):
        assert of_package(registryType="pypi", version=version).fault == ""
    for version in ("1.0.0-beta.1", "1.0.0+build.5"):
        assert of_package(version=version).fault == ""


@pytest.mark.timeout(10)
def test_long_version_is_checked_at_once() -> None:
    assert "no pinned version" in of_package(registryType="pypi", version="1" + "a-" * 500 + "!").fault


@pytest.mark.parametrize("kind", ["oci", "mcpb", "nuget", "cargo", None])
def test_package_that_can_not_be_run_here_is_refused(kind: str | None) -> None:
    assert f"packages of the type {kind} can't be run here, only npm and pypi" in of_package(registryType=kind).fault


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"identifier": "--registry=https://evil.example"}, "not the name of a package"),
        ({"identifier": "https://evil.example/a.tgz"}, "not the name of a package"),
        ({"identifier": "git+ssh://evil"}, "not the name of a package"),
        ({"registryBaseUrl": "https://npm.evil.example"}, "in the registry https://npm.evil.example"),
        ({"registryBaseUrl": "https://registry.npmjs.org.evil.example"}, "registry.npmjs.org.evil.example"),
        ({"transport": {"type": "streamable-http", "url": "http://localhost:1/"}}, "not over stdio"),
        (
            {"runtimeArguments": [{"type": "named", "name": "--registry", "value": "https://evil"}]},
            "asks for the options",
        ),
        ({"runtimeArguments": [{"type": "positional", "value": "other-package"}]}, "asks for the options"),
        ({"packageArguments": [{"type": "positional", "value": "${DATABASE_URL}"}]}, "a variable of this machine"),
        ({"packageArguments": [{"type": "named", "name": "--x=${HOME}", "value": "1"}]}, "a variable of this machine"),
        ({"environmentVariables": [{"name": "A", "value": "${DATABASE_URL}"}]}, "a variable of this machine"),
        ({"environmentVariables": [{"name": "A B", "isRequired": True}]}, "not the name of a variable"),
        ({"environmentVariables": [{"name": "A", "default": "${DATABASE_URL}"}]}, "a variable of this machine"),
        (
            {"packageArguments": [{"type": "positional", "value": "{a}{HOME}", "variables": {"a": {"value": "$"}}}]},
            "'${HOME}' refers to a variable of this machine",
        ),
        (
            {"environmentVariables": [{"name": "A", "value": "{a}{HOME}", "variables": {"a": {"default": "$"}}}]},
            "'${HOME}' refers to a variable of this machine",
        ),
        ({"environmentVariables": [{"name": "DATABASE_URL", "isRequired": True}]}, "DATABASE_URL, a secret"),
        ({"environmentVariables": [{"name": "openai_api_key", "isRequired": True}]}, "openai_api_key, a secret"),
        (
            {"environmentVariables": [{"name": "NPM_CONFIG_REGISTRY", "value": "https://evil.example"}]},
            "something else",
        ),
        ({"environmentVariables": [{"name": "NODE_OPTIONS", "isRequired": True}]}, "something else"),
        ({"environmentVariables": [{"name": "LD_PRELOAD", "default": "/tmp/x.so"}]}, "something else"),
        ({"environmentVariables": [{"name": "UV_INDEX_URL", "value": "https://evil.example"}]}, "something else"),
        ({"environmentVariables": [{"name": "A", "value": "1\n+ shop"}]}, "a line break"),
        ({"packageArguments": "x"}, "not as the schema says"),
        ({"environmentVariables": [{"description": "?"}]}, "not as the schema says"),
    ],
)
def test_package_that_would_run_or_read_something_else_is_refused(fields: dict[str, Any], reason: str) -> None:
    found = of_package(**fields)

    assert reason in found.fault
    assert found.config == {}


def test_option_of_the_runner_is_taken_only_if_it_is_there_in_any_case() -> None:
    yes = of_package(runtimeArguments=[{"type": "positional", "value": "-y"}])
    source = [{"type": "named", "name": "--from", "value": "shop-mcp"}, {"type": "positional", "value": "shop"}]

    assert yes.config["args"] == ["-y", "shop-mcp@1.2.3"]
    assert "options --from=shop-mcp shop" in of_package(registryType="pypi", runtimeArguments=source).fault


def test_optional_variable_and_one_of_the_server_itself_are_no_reason_to_refuse() -> None:
    found = of_package(
        environmentVariables=[{"name": "GITHUB_TOKEN", "isRequired": True}, {"name": "HTTPS_PROXY"}, {"name": "UNITS"}]
    )

    assert (found.fault, found.config["env"]) == ("", {"GITHUB_TOKEN": "${GITHUB_TOKEN}"})


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "https://evil.example/{a}{OPENAI_API_KEY}", "variables": {"a": {"value": "$"}}},
        {"headers": [{"name": "X", "value": "{a}{HOME}", "variables": {"a": {"value": "$"}}}]},
        {"headers": [{"name": "X", "value": "${secret:shop}"}]},
    ],
)
def test_reference_that_substitution_makes_is_refused(fields: dict[str, Any]) -> None:
    assert "refers to a variable of this machine" in of_remote(**fields).fault


def test_own_variable_of_a_server_is_no_secret_of_the_platform() -> None:
    remote = {"type": "sse", "url": "https://x.example/", "headers": [{"name": "API-KEY", "isRequired": True}]}
    document = {"name": "com.example/openai", "remotes": [remote]}

    assert "OPENAI_API_KEY, a secret of the platform itself" in entry(document).fault
    assert entry(document, name="other").required == {"OTHER_API_KEY": ""}


def test_given_name_names_the_variables_and_is_checked() -> None:
    headers = [{"name": "KEY", "isRequired": True}]
    document = {"name": "a/shop", "remotes": [{"type": "sse", "url": "https://shop.example/", "headers": headers}]}

    assert entry(document, name="mall").config["headers"] == {"KEY": "${MALL_KEY}"}
    assert "The server 'a b' isn't right" in entry(document, name="a b").fault
    with pytest.raises(ConfigurationError, match="2 documents"):
        read_registry_documents(json.dumps([document, document]), "The file", name="mall")


def test_texts_of_a_document_are_of_one_line() -> None:
    header = {"name": "X", "isRequired": True, "description": "a\n+ other"}
    document: dict[str, Any] = {"name": "a/shop\n+ b", "version": "1\u2028+ c"}
    remote = {"type": "sse", "url": "https://shop.example/", "headers": [header]}

    found = entry({**document, "remotes": [remote]})
    refused = entry({**document, "packages": [{"registryType": "oci\n+ d"}]})

    assert (found.document, list(found.required.values())) == ("a/shop + b 1 + c", ["a + other"])
    assert "\n" not in refused.fault


def test_inputs_become_arguments_headers_and_references() -> None:
    key = {"api_key": {"isRequired": True, "isSecret": True, "description": "From the shop."}}
    package = of_package(
        packageArguments=[
            {"type": "named", "name": "--port", "default": "80"},
            {"type": "named", "name": "--quiet"},
            {"type": "named", "name": "--log", "value": "true", "format": "boolean"},
            {"type": "positional", "value": "start"},
            {"type": "positional", "valueHint": "place", "isRequired": True, "description": "Where."},
        ]
    )
    remote = of_remote(
        url="https://{region}.shop.example/{other}/mcp",
        variables={"region": {"default": "eu"}},
        headers=[
            {"name": "Authorization", "value": "Bearer {api_key}", "variables": key},
            {"name": "X-Optional"},
        ],
    )

    assert package.config["args"] == ["-y", "shop-mcp@1.2.3", "--port=80", "--log", "start", "${SHOP_PLACE}"]
    assert package.required == {"SHOP_PLACE": "Where."}
    assert remote.config == {
        "type": "http",
        "url": "https://eu.shop.example/{other}/mcp",
        "headers": {"Authorization": "Bearer ${SHOP_API_KEY}"},
    }
    assert remote.required == {"SHOP_API_KEY": "From the shop."}


def test_other_offer_is_used_where_the_first_can_not_be() -> None:
    document = {
        "name": "a/shop",
        "packages": [{"registryType": "oci", "identifier": "ghcr.io/a/shop:1"}],
        "remotes": [{"type": "streamable-http", "url": "https://shop.example/mcp"}],
    }

    assert entry(document).config["url"] == "https://shop.example/mcp"
    assert "type oci" in entry({**document, "remotes": []}).fault
    assert "neither a package nor an address" in entry({"name": "a/shop"}).fault


GARBAGE = (
    *("", " ", "no json", "{", "[", "[]", "null", "true", "3", '"text"', "{}", "[[]]", "[null]", "[{}]"),
    *('{"servers": 3}', '{"servers": [3]}', '{"server": []}', "[" * 100_000),
    *("1" * 5_000, "NaN", "\ufeff", "\x00", '{"mcpServers": {}}', "<html>404</html>"),
)


@pytest.mark.parametrize("text", GARBAGE, ids=range(len(GARBAGE)))
def test_text_without_a_document_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        read_registry_documents(text, "The file")


@pytest.mark.parametrize("text", ['{"name": "a", "name": "b"}', '{"name": "\\ud800"}'])
def test_document_without_anything_to_run_is_refused(text: str) -> None:
    [found] = read_registry_documents(text, "The file")

    assert (bool(found.fault), found.config) == (True, {})
