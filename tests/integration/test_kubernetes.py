"""The manifests of docker/kubernetes: valid by the schemas of Kubernetes, and the same services as docker-compose.yml.

There is no cluster to run them on. What can be wrong without one is checked here; the Dask operator's resource by the
fields that its documentation names.
"""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import kubernetes_validate
import pytest
import yaml

from frontend.settings import EXAMPLE_SECRET, Settings
from tests.program import REPOSITORY

FOLDER = REPOSITORY / "docker" / "kubernetes"
COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
RESOURCES: list[dict[str, Any]] = [
    resource for name in KUSTOMIZATION["resources"] for resource in yaml.safe_load_all((FOLDER / name).read_text())
]
NAMED = {(resource["kind"], resource["metadata"]["name"]): resource for resource in RESOURCES}
CLUSTER = NAMED["DaskCluster", "salmon"]
#: The oldest and the newest version of Kubernetes whose schemas are checked.
VERSIONS = ("1.31", "1.37")


def read_variables(name: str) -> dict[str, str]:
    lines = (FOLDER / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@dataclass(frozen=True)
class Pod:
    """A service of compose as its pod: labels and specification."""

    labels: dict[str, str]
    spec: dict[str, Any]

    @property
    def container(self) -> dict[str, Any]:
        (container,) = self.spec["containers"]
        return container


def pod_of(part: str) -> Pod:
    if part in {"scheduler", "worker"}:
        labels = {"dask.org/cluster-name": "salmon", "dask.org/component": part}  # which the operator sets
        return Pod(labels, CLUSTER["spec"][part]["spec"])
    kind = "StatefulSet" if part == "redis" else "Deployment"
    template = NAMED[kind, part]["spec"]["template"]
    return Pod(template["metadata"]["labels"], template["spec"])


PODS = {part: pod_of(part) for part in COMPOSE if part != "proxy"}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_resource_is_valid(version: str) -> None:
    for resource in RESOURCES:
        if resource["kind"] != "DaskCluster":
            kubernetes_validate.validate(resource, version, strict=True)
    for part in ("scheduler", "worker"):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": part}, "spec": PODS[part].spec}
        kubernetes_validate.validate(pod, version, strict=True)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": CLUSTER["spec"]["scheduler"]["service"],
    }
    kubernetes_validate.validate(service, version, strict=True)


def test_kustomize_puts_them_together() -> None:
    """Names of secrets and settings carry a hash of their content, so that pods are started again when they change."""
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl on this machine, so the manifests were not put together")
    command = ("kubectl", "kustomize", str(FOLDER))
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    made: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    assert len(made) == len(RESOURCES) + 2
    for resource in made:
        if resource["kind"] != "DaskCluster":
            kubernetes_validate.validate(resource, VERSIONS[-1], strict=True)
    assert all(each["metadata"]["namespace"] == "salmon" for each in made if each["kind"] != "Namespace")
    (secret,) = [each["metadata"]["name"] for each in made if each["kind"] == "Secret"]
    assert secret != "salmon"
    assert text.count("secretKeyRef") == text.count(f"name: {secret}\n") - 1
    images = {line.split()[-1].strip('"') for line in text.splitlines() if line.strip(" -").startswith("image:")}
    assert images == {f"{image['newName']}:{image['newTag']}" for image in KUSTOMIZATION["images"]}


def test_a_misspelt_field_is_noticed() -> None:
    wrong = NAMED["Deployment", "frontend"] | {"spec": NAMED["Deployment", "frontend"]["spec"] | {"replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_dask_cluster_has_the_operator_s_fields() -> None:
    assert CLUSTER["apiVersion"] == "kubernetes.dask.org/v1"
    assert set(CLUSTER["spec"]) == {"worker", "scheduler"}
    assert set(CLUSTER["spec"]["worker"]) <= {"replicas", "spec", "metadata"}
    assert set(CLUSTER["spec"]["scheduler"]) <= {"spec", "service", "metadata"}
    service = CLUSTER["spec"]["scheduler"]["service"]
    assert service["selector"] == PODS["scheduler"].labels
    assert {port["name"]: port["targetPort"] for port in service["ports"]} == {"tcp-comm": "tcp-comm"}
    assert "$(DASK_WORKER_NAME)" in PODS["worker"].container["args"]


def test_all_files_are_listed_and_all_images_named() -> None:
    files = {path.name for path in FOLDER.iterdir()}
    assert files == {"kustomization.yaml", "salmon.env", "secrets.env", *KUSTOMIZATION["resources"]}
    images = {pod.container["image"] for pod in PODS.values()}
    assert {image["name"] for image in KUSTOMIZATION["images"]} == images
    assert images == {"salmon-redis", "salmon-frontend", "salmon-backend"}
    for part, pod in PODS.items():
        dockerfile = COMPOSE[part]["build"]["dockerfile"]
        assert f"docker/{pod.container['image'].removeprefix('salmon-')}.Dockerfile" == dockerfile, part


def test_they_run_what_compose_runs() -> None:
    for part, pod in PODS.items():
        given, wanted = list(pod.container.get("args", [])), list(COMPOSE[part].get("command", []))
        if part == "worker":  # the operator says where the scheduler is
            given = [word for word in given if word not in {"--name", "$(DASK_WORKER_NAME)"}]
            wanted = [word for word in wanted if "://" not in word]
        assert given == wanted, part


def settings_of(pod: Pod) -> set[str]:
    names = {variable["name"] for variable in pod.container.get("env", [])}
    return names | (set(read_variables("salmon.env")) if "envFrom" in pod.container else set())


def test_each_gets_the_settings_of_its_service() -> None:
    for part, pod in PODS.items():
        wanted = set(COMPOSE[part].get("environment", {}))
        assert {name for name in settings_of(pod) if name in wanted} == wanted, part
        passwords = {"FRONTEND_PASSWORD", "BACKEND_PASSWORD", "ERASER_PASSWORD"}
        assert settings_of(pod) - wanted <= passwords, part
    known = {f"SALMON_{name.upper()}" for name in Settings.model_fields}
    assert set(read_variables("salmon.env")) <= known
    assert read_variables("secrets.env")["SALMON_SECRET"] == EXAMPLE_SECRET, "with which a server does not start"


def test_every_password_and_address_leads_somewhere() -> None:
    secrets = read_variables("secrets.env")
    for part, pod in PODS.items():
        earlier: set[str] = set()
        for variable in pod.container.get("env", []):
            if "valueFrom" in variable:
                assert variable["valueFrom"]["secretKeyRef"]["name"] == KUSTOMIZATION["secretGenerator"][0]["name"]
                assert variable["valueFrom"]["secretKeyRef"]["key"] in secrets, part
            elif "$(" in variable["value"]:
                assert variable["value"].partition("$(")[2].partition(")")[0] in earlier, part
            earlier.add(variable["name"])
    address = next(each["value"] for each in PODS["backend"].container["env"] if each["name"] == "SALMON_SCHEDULER")
    assert address == f"tcp://{CLUSTER['metadata']['name']}-scheduler:8786"
    ingress = NAMED["Ingress", "salmon"]["spec"]["rules"][0]
    assert ingress["http"]["paths"][0]["backend"]["service"]["name"] == "frontend"
    assert read_variables("salmon.env")["SALMON_PUBLIC_URL"] == f"https://{ingress['host']}"
    for (kind, name), resource in NAMED.items():
        if kind == "Service":
            (port,) = resource["spec"]["ports"]
            (own,) = PODS[name].container["ports"]
            assert (port["targetPort"], port["port"]) == (own["name"], own["containerPort"])
            assert resource["spec"]["selector"] == PODS[name].labels


def test_none_has_privileges_or_a_root_that_can_be_written() -> None:
    for part, pod in PODS.items():
        assert pod.spec["automountServiceAccountToken"] is False, part
        assert pod.spec["securityContext"]["runAsNonRoot"] is True, part
        assert pod.spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, part
        assert pod.container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, part
        dockerfile = (REPOSITORY / COMPOSE[part]["build"]["dockerfile"]).read_text()
        user = next(line for line in dockerfile.splitlines() if line.startswith("USER ")).removeprefix("USER ")
        assert str(pod.spec["securityContext"]["runAsUser"]) == user.partition(":")[0], part
        writable = {mount["mountPath"] for mount in pod.container["volumeMounts"]}
        assert {path.partition(":")[0] for path in COMPOSE[part].get("tmpfs", [])} <= writable, part


def test_what_serves_is_probed_and_disrupted_one_at_a_time() -> None:
    for part in ("redis", "frontend"):
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(PODS[part].container), part
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert PODS["frontend"].container[probe]["httpGet"] == {"path": "/healthz", "port": "http"}
    budget = NAMED["PodDisruptionBudget", "frontend"]["spec"]
    assert budget["selector"]["matchLabels"] == PODS["frontend"].labels
    assert budget["minAvailable"] < NAMED["Deployment", "frontend"]["spec"]["replicas"]
    assert NAMED["StatefulSet", "redis"]["spec"]["replicas"] == NAMED["Deployment", "backend"]["spec"]["replicas"] == 1
    assert NAMED["Deployment", "backend"]["spec"]["strategy"] == {"type": "Recreate"}


def policies(part: str, direction: str) -> Iterator[dict[str, Any]]:
    """The network policies that govern one direction of a pod's traffic."""
    for (kind, _), resource in NAMED.items():
        selected = resource["spec"]["podSelector"].get("matchLabels", {}) if kind == "NetworkPolicy" else None
        if selected is None or direction not in resource["spec"]["policyTypes"]:
            continue
        if selected.items() <= PODS[part].labels.items():
            yield resource["spec"]


def is_let(part: str, direction: str, other: str, port: int) -> bool:
    """Whether the policies of a pod let it speak with another pod on this port."""
    governing = list(policies(part, direction))
    assert governing, "the default policy selects every pod"
    for spec in governing:
        for rule in spec.get(direction.lower(), []):
            peers = rule["from" if direction == "Ingress" else "to"]
            named = any(
                peer["podSelector"].get("matchLabels", {}).items() <= PODS[other].labels.items()
                for peer in peers
                if "podSelector" in peer
            )
            if named and ("ports" not in rule or any(each["port"] == port for each in rule["ports"])):
                return True
    return False


def reaches(one: str, other: str, port: int) -> bool:
    return is_let(one, "Egress", other, port) and is_let(other, "Ingress", one, port)


def test_only_those_reach_each_other_who_must() -> None:
    listens = {"redis": 6379, "frontend": 8421, "scheduler": 8786, "worker": 40001, "backend": 8786}
    reached = {(one, other) for one in PODS for other in PODS if reaches(one, other, listens[other])}
    assert reached == {
        ("frontend", "redis"),
        ("backend", "redis"),
        ("backend", "scheduler"),
        ("scheduler", "worker"),
        ("worker", "scheduler"),
        ("worker", "worker"),
    }
    for one, other in reached:
        assert set(COMPOSE[one]["networks"]) & set(COMPOSE[other]["networks"]), "compose lets them, too"


def test_the_web_process_is_reached_from_the_ingress_alone() -> None:
    (rule,) = NAMED["NetworkPolicy", "frontend"]["spec"]["ingress"]
    (peer,) = rule["from"]
    assert peer == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}
