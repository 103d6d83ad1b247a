"""deploy/kubernetes: valid, complete, restricted, and in agreement with settings, commands and image."""

import copy
import json
from collections.abc import Callable
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from mcp_gateway.configuration.servers import parse_config
from starling.app.http.routes import health
from tests.support.command_syntax import parse_command
from tests.support.deploy_settings import (
    DEPLOY,
    image_user,
    image_variables,
    setting_variables,
    settings_from,
    writable_folders,
)
from tests.support.documented_commands import ROOT
from tests.support.kubernetes_objects import dangling, name_of, pods, read_objects

FOLDER = DEPLOY / "kubernetes"
OBJECTS = read_objects(FOLDER)
SECRET: dict[str, Any] = yaml.safe_load((FOLDER / "secret.example.yaml").read_text("utf-8"))
SCALING = read_objects(FOLDER / "autoscaling")
ADMIN: dict[str, Any] = yaml.safe_load((FOLDER / "admin.yaml").read_text("utf-8"))
MIGRATE: dict[str, Any] = yaml.safe_load((FOLDER / "migrate.yaml").read_text("utf-8"))
MONITORING = read_objects(FOLDER / "monitoring")
INGRESS = read_objects(FOLDER / "ingress")
SERVER = read_objects(FOLDER / "server")
SERVER_SECRET: dict[str, Any] = yaml.safe_load((FOLDER / "server/secret.example.yaml").read_text("utf-8"))
OWN_KINDS = [item for item in MONITORING if item["kind"] == "ServiceMonitor"]
COMPONENTS = [*INGRESS, *(item for item in MONITORING if item not in OWN_KINDS)]
ALL = [*OBJECTS, SECRET, ADMIN, MIGRATE, *COMPONENTS, *SERVER, SERVER_SECRET]
PODS = dict(pods([*OBJECTS, MIGRATE]))
VERSIONS = ("1.31", kubernetes_validate.latest_version())


def found(kind: str, name: str) -> dict[str, Any]:
    (item,) = [each for each in ALL if (each["kind"], name_of(each)) == (kind, name)]
    return dict(item)


def variables(name: str) -> dict[str, str]:
    """Return what a container of a workload has in its environment, with the example of the secret."""
    (container,) = PODS[name]["spec"]["containers"]
    own = {entry["name"]: entry["value"] for entry in container.get("env", ())}
    return image_variables() | found("ConfigMap", "starling-settings")["data"] | SECRET["stringData"] | own


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("item", ALL, ids=lambda item: f"{item['kind']}-{name_of(item)}")
def test_object_is_valid_by_the_schemas_of_kubernetes(item: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(item, version, strict=True)


@pytest.mark.parametrize("item", [*SCALING, *OWN_KINDS], ids=lambda item: item["kind"])
def test_object_of_an_operator_is_valid_by_its_published_schema(item: dict[str, Any]) -> None:
    group, _, number = item["apiVersion"].partition("/")
    file = ROOT / f"tests/data/deploy_schemas/{group}_{item['kind'].lower()}s.yaml"
    definition = yaml.safe_load(file.read_text("utf-8").replace("x-kubernetes-preserve-unknown-fields", "x-kept"))
    (version,) = [each for each in definition["spec"]["versions"] if each["name"] == number]
    schema = _closed(version["schema"]["openAPIV3Schema"])

    jsonschema.validate(item, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(item | {"spec": item["spec"] | {"triger": []}}, schema)


def _closed(schema: Any) -> Any:
    """Refuse fields that a schema doesn't name, as Kubernetes does when it is asked to be strict."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, dict):
        return schema
    closed: dict[str, Any] = {name: _closed(value) for name, value in schema.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(closed.get("properties"), dict) and closed.get("type") == "object" and len(closed["properties"]) > 0:
        closed.setdefault(
            "additionalProperties", "metadata" in closed["properties"] and "spec" not in closed["properties"]
        )
    return closed


def test_everything_in_the_folder_is_part_of_the_kustomization() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text("utf-8"))
    files = {file.name for file in FOLDER.glob("*.yaml")} - {"kustomization.yaml", "secret.example.yaml"}
    files -= {"admin.yaml", "migrate.yaml"}
    images = {container["image"] for pod in PODS.values() for container in pod["spec"]["containers"]}

    assert files == set(kustomization["resources"])
    assert images == {image["name"] for image in kustomization["images"]}


def test_nothing_leads_nowhere() -> None:
    assert dangling(ALL) == []


def _set(path: str, value: Any) -> Callable[[list[Any]], None]:
    """Return what changes a value of the Deployment starling-worker, or of another object that the path begins with."""

    def change(objects: list[Any]) -> None:
        kind, name, *steps = path.split("/")
        (target,) = [each for each in objects if (each["kind"], name_of(each)) == (kind, name)]
        for step in steps[:-1]:
            target = target[int(step) if step.isdigit() else step]
        target[steps[-1]] = value

    return change


POD = "Deployment/starling-worker/spec/template/spec"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (_set("Deployment/starling-worker/spec/selector/matchLabels", {"app": "x"}), "chooses pods of others"),
        (_set("Service/starling-api/spec/selector", {"app": "x"}), "no pod has the labels"),
        (_set("Service/starling-api/spec/ports/0/targetPort", "htp"), "has the port htp"),
        (_set("NetworkPolicy/starling-worker/spec/ingress/0/ports/0/port", "http"), "has the port http"),
        (_set(f"{POD}/serviceAccountName", "x"), "names ServiceAccount x"),
        (_set(f"{POD}/volumes/0/configMap/name", "x"), "names ConfigMap x"),
        (_set(f"{POD}/volumes/1/name", "x"), "no volume is called data"),
        (_set(f"{POD}/containers/0/readinessProbe/httpGet/port", "http"), "readinessProbe asks a port"),
        (_set("ConfigMap/starling-servers/metadata/name", "starling-settings"), "two objects are ConfigMap"),
    ],
)
def test_a_wrong_name_is_found(change: Callable[[list[Any]], None], fault: str) -> None:
    objects = copy.deepcopy(ALL)
    change(objects)

    assert any(fault in text for text in dangling(objects))


@pytest.mark.parametrize("pod", [*PODS.values(), ADMIN, *dict(pods(SERVER)).values()], ids=[*PODS, "admin", "server"])
def test_pod_is_restricted(pod: dict[str, Any]) -> None:
    uid, gid = image_user()
    security = pod["spec"]["securityContext"]

    assert security["runAsNonRoot"] is True
    assert (security["runAsUser"], security["runAsGroup"], security["fsGroup"]) == (uid, gid, gid)
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert not pod["spec"].keys() & {"hostNetwork", "hostPID", "hostIPC"}
    assert all(volume.keys() & {"emptyDir", "configMap"} for volume in pod["spec"]["volumes"])
    for container in pod["spec"]["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        written = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        assert written == (writable_folders() if container["image"] == "starling" else {"/tmp"})


def test_server_with_secrets_has_a_secret_of_its_own_and_does_not_reach_postgres() -> None:
    (pod,) = dict(pods(SERVER)).values()
    labels = pod["metadata"]["labels"]
    policies = [item["spec"] for item in ALL if item["kind"] == "NetworkPolicy"]
    its_own = [spec for spec in policies if spec["podSelector"].get("matchLabels", {}).items() <= labels.items()]

    assert pod["spec"]["containers"][0]["envFrom"] == [{"secretRef": {"name": SERVER_SECRET["metadata"]["name"]}}]
    assert {port["port"] for spec in its_own for rule in spec["egress"] for port in rule["ports"]} == {53, 443}


@pytest.mark.parametrize("name", PODS)
def test_variables_are_settings_with_values_that_a_start_accepts(name: str) -> None:
    own = variables(name)
    settings = settings_from(own)

    assert own.keys() - image_variables().keys() <= setting_variables()
    assert settings.host == "0.0.0.0"  # noqa: S104 - what the image listens on
    assert settings.require_keys


@pytest.mark.parametrize("name", ["starling-api", "starling-worker"])
def test_servers_of_a_container_have_less_memory_than_it_has(name: str) -> None:
    (container,) = PODS[name]["spec"]["containers"]
    memory = container["resources"]["limits"]["memory"]

    assert settings_from(variables(name)).limits.server_memory_bytes < int(memory.removesuffix("Gi")) * 2**30


@pytest.mark.parametrize("name", ["starling-api", "starling-worker"])
def test_disruption_budget_lets_a_node_be_drained_with_any_number_of_pods_and_while_none_is_ready(name: str) -> None:
    budget = found("PodDisruptionBudget", name)["spec"]

    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_commands_are_commands_with_their_options() -> None:
    arguments = {name: pod["spec"]["containers"][0]["args"] for name, pod in PODS.items()}

    assert arguments == {
        "starling-migrate": ["db", "upgrade"],
        "starling-api": ["serve"],
        "starling-worker": ["worker"],
    }
    for words in arguments.values():
        parse_command(words)


@pytest.mark.parametrize(("name", "variable"), [("starling-api", "PORT"), ("starling-worker", "STARLING_WORKER_PORT")])
def test_probes_ask_routes_on_the_port_that_is_served(name: str, variable: str) -> None:
    (container,) = PODS[name]["spec"]["containers"]
    (port,) = container["ports"]
    asked = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    routes = {getattr(route, "path", "") for route in health.router.routes}

    assert port["containerPort"] == int(variables(name)[variable])
    assert set(asked.values()) <= routes
    assert asked == {"startup": "/health", "liveness": "/health", "readiness": "/ready"}


def test_startup_probe_waits_as_long_as_a_start_may() -> None:
    limits = settings_from(variables("starling-worker")).limits
    (container,) = PODS["starling-worker"]["spec"]["containers"]
    probe = container["startupProbe"]

    longest = limits.database_seconds + limits.server_start_seconds
    assert probe["periodSeconds"] * probe["failureThreshold"] > longest


def test_a_worker_has_time_to_drain_before_it_is_killed() -> None:
    limits = settings_from(variables("starling-worker")).limits

    assert PODS["starling-worker"]["spec"]["terminationGracePeriodSeconds"] > limits.drain_seconds + 20


def test_servers_are_the_ones_of_compose() -> None:
    text = found("ConfigMap", "starling-servers")["data"]["mcp.json"]

    assert list(parse_config(text, "mcp.json")) == ["system_health"]
    assert json.loads(text) == json.loads((DEPLOY / "mcp.json").read_text("utf-8"))


def test_scaler_names_the_worker_and_a_key_of_the_secret() -> None:
    authentication, scaler = SCALING
    (trigger,) = scaler["spec"]["triggers"]
    (reference,) = authentication["spec"]["secretTargetRef"]
    slots = settings_from(variables("starling-worker")).limits.runs_per_worker

    assert scaler["spec"]["scaleTargetRef"]["name"] in PODS
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    assert reference["name"] == SECRET["metadata"]["name"]
    assert reference["key"] in SECRET["stringData"]
    assert 0 < int(trigger["metadata"]["targetQueryValue"]) < slots
    assert {each["metadata"]["namespace"] for each in SCALING} == {
        found("Deployment", "starling-api")["metadata"]["namespace"]
    }


def test_migration_waits_for_nothing_that_the_kustomization_makes() -> None:
    spec = MIGRATE["spec"]["template"]["spec"]
    (container,) = spec["containers"]

    assert MIGRATE["metadata"]["namespace"] == found("Deployment", "starling-api")["metadata"]["namespace"]
    assert container["envFrom"] == [{"secretRef": {"name": SECRET["metadata"]["name"]}}]
    assert all("emptyDir" in volume for volume in spec["volumes"])
    assert spec["serviceAccountName"] == "default"


def test_migration_is_a_hook_of_argo_cd_and_helm_and_each_job_gets_a_name_of_its_own() -> None:
    assert {name: value for name, value in MIGRATE["metadata"].items() if name in ("name", "generateName")} == {
        "generateName": "starling-migrate-"
    }
    assert MIGRATE["metadata"]["annotations"] == {
        "argocd.argoproj.io/hook": "PreSync",
        "argocd.argoproj.io/hook-delete-policy": "HookSucceeded",
        "helm.sh/hook": "pre-install,pre-upgrade",
        "helm.sh/hook-delete-policy": "hook-succeeded",
    }


def test_monitor_finds_the_services_of_both_jobs_by_their_ports() -> None:
    (monitor,) = OWN_KINDS
    wanted = monitor["spec"]["selector"]["matchLabels"]
    services = [item for item in ALL if item["kind"] == "Service"]
    chosen = [item for item in services if wanted.items() <= item["metadata"].get("labels", {}).items()]
    ports = {item["metadata"]["name"]: [port["name"] for port in item["spec"]["ports"]] for item in chosen}

    assert ports == {"starling-api": ["http"], "starling-worker": ["health"]}
    assert [each["port"] for each in monitor["spec"]["endpoints"]] == ["http", "health"]


def test_ingress_leads_to_the_api_and_waits_for_a_run() -> None:
    (ingress,) = INGRESS
    (rule,) = ingress["spec"]["rules"]
    service = rule["http"]["paths"][0]["backend"]["service"]
    seconds = ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-read-timeout"]

    assert service["port"]["name"] in [port["name"] for port in found("Service", service["name"])["spec"]["ports"]]
    assert int(seconds) > settings_from(variables("starling-api")).limits.run_seconds


def test_scrape_configuration_finds_the_pods_of_each_job() -> None:
    scrape: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/kubernetes.yaml").read_text("utf-8"))
    namespace = found("Deployment", "starling-api")["metadata"]["namespace"]

    for job in scrape["scrape_configs"]:
        (lookup,) = job["kubernetes_sd_configs"]
        wanted = dict(pair.split("=") for pair in lookup["selectors"][0]["label"].split(","))
        chosen = [name for name, pod in PODS.items() if wanted.items() <= pod["metadata"]["labels"].items()]
        assert lookup["namespaces"]["names"] == [namespace]
        assert chosen == [job["job_name"]]
