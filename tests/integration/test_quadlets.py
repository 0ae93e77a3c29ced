"""The Podman quadlets: every key is one that Podman knows, and they say what docker-compose.yml says.

Podman before version 4.4 has no quadlets, so they cannot be run everywhere; what can be wrong
without Podman is checked here.
"""

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.program import REPOSITORY

FOLDER = REPOSITORY / "docker" / "quadlet"
COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
UNITS = sorted(path for path in FOLDER.iterdir() if path.suffix in {".container", ".network", ".volume"})
CONTAINERS = {path.stem.removeprefix("salmon-").rstrip("@"): path for path in UNITS if path.suffix == ".container"}
#: The keys of podman-systemd.unit(5), Podman 5, that may stand in each section of ours.
KNOWN = {
    "Unit": {"Description", "Requires", "After"},
    "Container": {
        "AddCapability",
        "ContainerName",
        "DropCapability",
        "Environment",
        "EnvironmentFile",
        "Exec",
        "HealthCmd",
        "HealthInterval",
        "Image",
        "Network",
        "NoNewPrivileges",
        "PublishPort",
        "ReadOnly",
        "Tmpfs",
        "Volume",
    },
    "Network": {"Subnet"},
    "Volume": {"VolumeName"},
    "Service": {"Restart", "TimeoutStartSec"},
    "Install": {"WantedBy", "DefaultInstance"},
}


def read(path: Path) -> dict[str, list[tuple[str, str]]]:
    """The sections of a unit, with their keys in order."""
    sections: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    for line in path.read_text().splitlines():
        if line.startswith("["):
            current = sections.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            current.append((key, value))
    return sections


def values(path: Path, key: str, section: str = "Container") -> list[str]:
    return [value for name, value in read(path)[section] if name == key]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_every_section_and_key_is_known(path: Path) -> None:
    for section, pairs in read(path).items():
        unknown = {key for key, _ in pairs} - KNOWN[section]
        assert not unknown, f"{path.name}: [{section}] {unknown}"


def test_what_they_name_is_there() -> None:
    names = {path.name for path in UNITS}
    for path in CONTAINERS.values():
        for network in values(path, "Network"):
            assert network in names, path.name
        for volume in values(path, "Volume"):
            source = volume.partition(":")[0]
            assert source in names or source.startswith("%E/"), path.name
        for each in values(path, "EnvironmentFile"):
            assert (FOLDER / each.removeprefix("%E/salmon/")).is_file(), path.name
        for service in " ".join(values(path, "Requires", "Unit")).split():
            assert f"{service.removesuffix('.service')}.container" in names, path.name


def test_they_are_the_services_of_compose() -> None:
    services = COMPOSE["services"]
    assert set(CONTAINERS) == set(services)
    for name, path in CONTAINERS.items():
        command = shlex.split(" ".join(values(path, "Exec")))
        assert command == list(services[name].get("command", [])), name
        networks = {each.removeprefix("salmon-").removesuffix(".network") for each in values(path, "Network")}
        assert networks == set(services[name]["networks"]), name
        assert bool(values(path, "PublishPort")) == ("ports" in services[name]), name


def test_each_gets_the_settings_of_its_service() -> None:
    for name, path in CONTAINERS.items():
        wanted = set(COMPOSE["services"][name].get("environment", {}))
        given = {pair.partition("=")[0] for value in values(path, "Environment") for pair in shlex.split(value)}
        for each in values(path, "EnvironmentFile"):
            lines = (FOLDER / each.removeprefix("%E/salmon/")).read_text().splitlines()
            given |= {line.partition("=")[0] for line in lines if line and not line.startswith("#")}
        assert given == wanted, name


def test_none_has_privileges_or_a_root_that_can_be_written() -> None:
    for name, path in CONTAINERS.items():
        assert values(path, "ReadOnly") == ["true"], name
        assert values(path, "NoNewPrivileges") == ["true"], name
        assert values(path, "DropCapability") == ["ALL"], name
        assert values(path, "AddCapability") == (["NET_BIND_SERVICE"] if name == "proxy" else []), name


def test_the_proxy_s_network_is_the_one_that_is_believed() -> None:
    (subnet,) = values(FOLDER / "salmon-web.network", "Subnet", "Network")
    (environment,) = values(CONTAINERS["frontend"], "Environment")
    assert f"SALMON_TRUSTED_PROXIES={subnet}" in environment.split()
    believed = COMPOSE["services"]["frontend"]["environment"]["SALMON_TRUSTED_PROXIES"]
    assert subnet in believed
    assert believed == COMPOSE["networks"]["web"]["ipam"]["config"][0]["subnet"]
    on_it = {name for name, service in COMPOSE["services"].items() if "web" in service["networks"]}
    assert on_it == {"frontend", "proxy"}
