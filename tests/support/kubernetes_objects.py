"""What in Kubernetes objects leads nowhere: selectors, ports, volumes and names of other objects."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

type Object = Mapping[str, Any]


def read_objects(folder: Path) -> list[Object]:
    """Return the objects of a kustomization, with its namespace, in the order of its resources."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
    found: list[Object] = []
    for name in kustomization["resources"]:
        for item in yaml.safe_load_all((folder / name).read_text("utf-8")):
            if "namespace" in kustomization and item["kind"] != "Namespace":
                item["metadata"]["namespace"] = kustomization["namespace"]
            found.append(item)
    return found


def name_of(item: Object) -> str:
    """Return the name of an object; of a generated one what it begins with, without the dash."""
    metadata = item["metadata"]
    return str(metadata.get("name") or metadata["generateName"].removesuffix("-"))


def pods(objects: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    """Yield the name of each workload and its pod template, and each pod of its own."""
    for item in objects:
        if item["kind"] == "Pod":
            yield name_of(item), item
        if "template" in item.get("spec", {}):
            yield name_of(item), item["spec"]["template"]


def dangling(objects: Sequence[Object]) -> list[str]:
    """Return what names something that isn't there, as texts."""
    names = {(item["kind"], name_of(item)) for item in objects} | {("ServiceAccount", "default")}
    templates = dict(pods(objects))
    found = [f"two objects are {kind} {name}" for kind, name in names if _count(objects, kind, name) > 1]
    for name, template in templates.items():
        found += [
            f"{name} names {kind} {other}" for kind, other in _named(template["spec"]) if (kind, other) not in names
        ]
        found += [f"{name}: {what}" for what in _pod_faults(template["spec"])]
    for item in objects:
        found += [f"{item['kind']} {name_of(item)}: {what}" for what in _selector_faults(item, templates)]
    return found


def _count(objects: Sequence[Object], kind: str, name: str) -> int:
    return sum((item["kind"], name_of(item)) == (kind, name) for item in objects)


def _named(spec: Object) -> Iterator[tuple[str, str]]:
    yield "ServiceAccount", spec["serviceAccountName"]
    for volume in spec.get("volumes", ()):
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]
    for container in spec["containers"]:
        for source in container.get("envFrom", ()):
            kind = "ConfigMap" if "configMapRef" in source else "Secret"
            yield kind, source["configMapRef" if kind == "ConfigMap" else "secretRef"]["name"]


def _pod_faults(spec: Object) -> Iterator[str]:
    volumes = {volume["name"] for volume in spec.get("volumes", ())}
    for container in spec["containers"]:
        mounted = {mount["name"] for mount in container.get("volumeMounts", ())}
        ports = {port["name"] for port in container.get("ports", ())}
        yield from (f"no volume is called {name}" for name in mounted - volumes)
        yield from (f"the volume {name} isn't mounted" for name in volumes - mounted)
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            if kind in container and container[kind]["httpGet"]["port"] not in ports:
                yield f"{kind} asks a port that isn't there: {container[kind]['httpGet']['port']}"


def _selector_faults(item: Object, templates: Mapping[str, Object]) -> Iterator[str]:
    spec = item.get("spec", {})
    selector = spec.get("podSelector", spec.get("selector"))
    if selector is None:
        return
    wanted = selector.get("matchLabels", {} if "podSelector" in spec else selector)
    chosen = [template for template in templates.values() if wanted.items() <= template["metadata"]["labels"].items()]
    if not chosen:
        yield f"no pod has the labels {dict(wanted)}"
    if item["kind"] == "Deployment" and chosen != [spec["template"]]:
        yield "its selector chooses pods of others, or not its own"
    offered = {port["name"] for each in chosen for part in each["spec"]["containers"] for port in part.get("ports", ())}
    for port in _asked_ports(item):
        if port not in offered:
            yield f"no container of its pods has the port {port}"


def _asked_ports(item: Object) -> Iterator[str]:
    if item["kind"] == "Service":
        yield from (port["targetPort"] for port in item["spec"]["ports"])
    for rule in item["spec"].get("ingress", ()):
        yield from (port["port"] for port in rule["ports"])
