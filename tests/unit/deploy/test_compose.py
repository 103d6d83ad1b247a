"""deploy/compose.yaml: valid, complete, in agreement with settings, commands and image, and without secrets."""

import json
import re
from typing import Any

import jsonschema
import pytest
import yaml

from mcp_gateway.configuration.servers import read_config
from starling.core.settings.schema import Limits
from tests.support.command_syntax import parse_command
from tests.support.deploy_settings import (
    DEPLOY,
    image_user,
    image_variables,
    setting_variables,
    settings_from,
    variables_of_file,
    writable_folders,
)
from tests.support.documented_commands import ROOT

TEXT = (DEPLOY / "compose.yaml").read_text("utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("${STARLING_IMAGE")}
_SECRET = re.compile(r"PASSWORD|SECRET|KEY|SALT|AUTH|TOKEN|DATABASE_URL")
_VARIABLE = re.compile(r"\$\{(\w+)")


def needed_by(service: dict[str, Any]) -> set[str]:
    return set(service.get("depends_on", ()))


def seconds(duration: str) -> float:
    assert duration.endswith("s")
    return float(duration[:-1])


def test_file_is_valid_by_the_published_schema() -> None:
    schema = json.loads((ROOT / "tests/data/deploy_schemas/compose-spec.json").read_text("utf-8"))
    validator = jsonschema.Draft7Validator(schema)

    validator.validate(COMPOSE)
    assert not validator.is_valid({**COMPOSE, "services": {"api": {"comand": "serve"}}})


def test_services_are_those_that_readme_and_profiles_promise() -> None:
    by_profile = {
        profile: {name for name, service in SERVICES.items() if profile in service.get("profiles", [""])}
        for profile in ("", "server", "monitoring", "langfuse")
    }

    assert by_profile[""] == {"postgres", "migrate", "api", "worker"}
    assert by_profile["server"] == {"server"}
    assert by_profile["monitoring"] == {"prometheus", "grafana"}
    assert {"langfuse-web", "langfuse-worker"} < by_profile["langfuse"]
    assert SERVICES["worker"]["deploy"]["replicas"] == 2


def test_what_a_service_names_exists() -> None:
    for name, service in SERVICES.items():
        profiles = set(service.get("profiles", ()))
        for other in needed_by(service):
            assert set(SERVICES[other].get("profiles", ())) <= profiles, f"{name} needs {other}"
        sources = [volume.split(":")[0] for volume in service.get("volumes", ())]
        assert {source for source in sources if not source.startswith(".")} <= COMPOSE["volumes"].keys()
        assert all((DEPLOY / source).exists() for source in sources if source.startswith("."))
        assert {config["source"] for config in service.get("configs", ())} <= COMPOSE["configs"].keys()
        assert set(service.get("secrets", ())) <= COMPOSE["secrets"].keys()
    assert all((DEPLOY / config["file"]).exists() for config in COMPOSE["configs"].values())


def test_no_value_of_a_secret_is_in_the_file() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if variable.endswith("__FILE"):
                assert value.removeprefix("/run/secrets/") in service["secrets"]
            elif _SECRET.search(variable) and not variable.endswith(("ACCESS_KEY_ID", "NEXTAUTH_URL")):
                assert re.search(r"\$\{\w+(:\?[^}]+|:-)\}", value), f"{name}: {variable}"
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert {"/deploy/.env", "/deploy/settings.env", "/deploy/server.env", "/deploy/secrets/"} <= set(ignored)


def test_variables_that_the_file_takes_are_in_the_example() -> None:
    example = variables_of_file((DEPLOY / "env.example").read_text("utf-8"))

    assert set(_VARIABLE.findall(TEXT)) - {"LANGFUSE_VERSION"} == example


def test_variables_of_services_and_of_the_example_are_settings() -> None:
    example = variables_of_file((DEPLOY / "settings.env.example").read_text("utf-8"))

    assert len(OURS) == 3
    for service in OURS.values():
        assert service["environment"].keys() <= setting_variables()
    assert example
    assert example <= setting_variables()


def test_commands_are_commands_with_their_options() -> None:
    assert [service["command"] for service in OURS.values()] == [["db", "upgrade"], ["serve"], ["worker"]]
    for service in OURS.values():
        parse_command(service["command"])


def test_server_with_secrets_shares_no_variables_and_no_network_with_postgres() -> None:
    server = SERVICES["server"]

    assert ([file["path"] for file in server["env_file"]], "environment" in server) == (["server.env"], False)
    assert server["networks"] == ["server"]
    assert "server" not in SERVICES["postgres"].get("networks", ())
    assert all(set(service["networks"]) == {"default", "server"} for service in OURS.values())
    assert COMPOSE["networks"].keys() == {"server"}
    assert (server["read_only"], server["cap_drop"]) == (True, ["ALL"])


def test_one_service_builds_the_image_of_all() -> None:
    assert [name for name, service in OURS.items() if "build" in service] == ["migrate"]
    assert len({service["image"] for service in OURS.values()}) == 1


def test_servers_from_package_registries_may_be_executed_in_their_home() -> None:
    for service in OURS.values():
        [home] = [mount for mount in service["tmpfs"] if mount.startswith("/home/starling:")]
        assert "exec" in home.partition(":")[2].split(",")


def test_containers_write_nothing_but_temporary_folders() -> None:
    uid, gid = image_user()
    for service in OURS.values():
        folders = {mount.partition(":")[0]: mount.partition(":")[2] for mount in service["tmpfs"]}
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert folders.keys() == writable_folders()
        assert all(f"uid={uid},gid={gid}" in options for folder, options in folders.items() if folder != "/tmp")


def test_a_worker_has_time_to_drain_before_it_is_killed() -> None:
    assert seconds(SERVICES["worker"]["stop_grace_period"]) > Limits().drain_seconds + 20


@pytest.mark.parametrize("name", ["api", "worker"])
def test_servers_of_a_container_have_less_memory_than_it_has(name: str) -> None:
    example = (DEPLOY / "settings.env.example").read_text("utf-8")
    (limits,) = re.findall(r"^STARLING_LIMITS='(.+)'$", example, re.MULTILINE)
    memory = SERVICES[name]["deploy"]["resources"]["limits"]["memory"]

    assert settings_from({"STARLING_LIMITS": limits}).limits.server_memory_bytes < int(memory.removesuffix("g")) * 2**30


def test_logs_of_all_containers_are_rotated() -> None:
    assert all(service["logging"] == {"driver": "local"} for service in SERVICES.values())


def test_ports_are_those_of_the_image_and_of_the_scrape_configuration() -> None:
    scrape: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text("utf-8"))
    targets = {
        name: lookup["port"]
        for job in scrape["scrape_configs"]
        for lookup in job["dns_sd_configs"]
        for name in lookup["names"]
    }
    credentials = {job["authorization"]["credentials_file"] for job in scrape["scrape_configs"]}

    assert targets == {
        "api": int(image_variables()["PORT"]),
        "worker": SERVICES["worker"]["environment"]["STARLING_WORKER_PORT"],
    }
    assert SERVICES["api"]["ports"][0].endswith(f":{image_variables()['PORT']}")
    assert credentials == {f"/run/secrets/{name}" for name in SERVICES["prometheus"]["secrets"]}


def test_postgres_has_connections_for_all_processes() -> None:
    (allowed,) = [int(word.partition("=")[2]) for word in SERVICES["postgres"]["command"] if "max_connections" in word]

    assert allowed >= 30 * (1 + SERVICES["worker"]["deploy"]["replicas"]) + 10


def test_servers_of_the_file_are_read_from_where_the_setting_says() -> None:
    found = read_config(DEPLOY / "mcp.json")

    for service in OURS.values():
        (mounted,) = [config["target"] for config in service["configs"]]
        assert mounted == service["environment"]["STARLING_MCP_CONFIG"]
    assert list(found) == ["system_health"]
