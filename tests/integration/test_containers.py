"""The containers without an engine: the files are valid, and each service starts by the command the files give it."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
import yaml

from salmon.cli.redis_server import READY, find_server
from salmon.wire import Heartbeat, access_list
from tests.program import REPOSITORY, poll

COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
DOCKER = REPOSITORY / "docker"
BIN = Path(sys.executable).parent
PASSWORDS = {
    "SALMON_FRONTEND_PASSWORD": "front-secret",
    "SALMON_BACKEND_PASSWORD": "back-secret",
    "SALMON_ERASER_PASSWORD": "eraser",
}


def command_of(service: str, **replaced: str) -> list[str]:
    """The command of a service, its program from this environment, some words replaced."""
    words = [replaced.get(word, word) for word in COMPOSE["services"][service]["command"]]
    if service == "frontend":
        words = ["salmon", "frontend", *words]  # the entry point of its image
    return [str(BIN / words[0]), *words[1:]]


@contextmanager
def started(command: list[str], ready: str | None = None, **environment: str) -> Iterator[list[str]]:
    """A program while it runs, once it has printed `ready`; yields the lines it printed."""
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines: list[str] = []
    seen = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                lines.append(line)
                if ready is not None and ready in line:
                    seen.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        if ready is not None:
            assert seen.wait(60), "".join(lines)
        yield lines
    finally:
        process.terminate()
        process.wait(20)
        reader.join(10)


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The store of docker/, started by its script, on a unix socket instead of its port and in a directory of ours."""
    folder = tmp_path_factory.mktemp("redis")
    lines = (DOCKER / "redis.conf").read_text().replace("port 6379", f"port 0\nunixsocket {folder}/r.sock")
    (folder / "source.conf").write_text(lines.replace("dir /data", f"dir {folder}"))
    environment = {"SALMON_REDIS_CONF": str(folder / "source.conf"), "SALMON_REDIS_RUN": str(folder)}
    with started(
        [str(DOCKER / "redis-start.sh")], READY, SALMON_REDIS_SERVER=str(find_server()), **environment, **PASSWORDS
    ):
        yield folder / "r.sock"


def test_the_compose_file_follows_the_compose_schema() -> None:
    subprocess.run(
        (BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", REPOSITORY / "docker-compose.yml"),
        check=True,
        capture_output=True,
    )
    assert set(COMPOSE["services"]) == {"redis", "frontend", "backend", "scheduler", "worker", "proxy"}


@pytest.mark.parametrize("path", sorted(DOCKER.glob("*.Dockerfile")), ids=lambda path: path.name)
def test_the_dockerfiles_pass_the_linter_and_run_as_nobody(path: Path) -> None:
    done = subprocess.run((BIN / "hadolint", path), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    users = [line.split()[1] for line in path.read_text().splitlines() if line.startswith("USER ")]
    assert users
    assert not users[-1].startswith(("0", "root"))


def test_every_copied_file_is_there() -> None:
    for path in DOCKER.glob("*.Dockerfile"):
        for line in path.read_text().splitlines():
            if line.startswith("COPY ") and "--from" not in line:
                for name in line.split()[1:-1]:
                    assert (REPOSITORY / name).exists(), f"{path.name} copies {name}, which is not there"


def test_frontend_and_backend_share_no_network() -> None:
    networks = {name: set(service["networks"]) for name, service in COMPOSE["services"].items()}
    assert not networks["frontend"] & networks["backend"]
    assert networks["redis"] == {"front", "back"}
    assert [name for name, service in COMPOSE["services"].items() if "ports" in service] == ["proxy"]


def test_the_access_list_is_the_one_that_wire_writes() -> None:
    written = [line for line in (DOCKER / "redis.conf").read_text().splitlines() if line.startswith("user ")]
    assert tuple(written) == access_list("REPLACE", "REPLACE", "REPLACE")


def test_the_store_starts_with_the_passwords_of_its_environment(socket: Path) -> None:
    with redis.Redis.from_url(f"unix://frontend:front-secret@{socket}") as client:
        assert client.ping()
    with redis.Redis.from_url(f"unix://frontend:REPLACE@{socket}") as client, pytest.raises(redis.AuthenticationError):
        client.ping()


def test_the_web_process_starts_by_its_command(socket: Path, tmp_path: Path) -> None:
    command = command_of("frontend", **{"8421": "0", "0.0.0.0": "127.0.0.1"})
    environment = {
        "SALMON_REDIS_URL": f"unix://frontend:front-secret@{socket}",
        "SALMON_SECRET": "0123456789abcdef",
        "SALMON_DATA": str(tmp_path),
    }
    with started(command, "ready ", **environment) as lines:
        port = next(line for line in lines if line.startswith("ready ")).split()[1]
        assert httpx.get(f"http://127.0.0.1:{port}/healthz").json() == {"status": "ok"}


def test_the_learning_process_the_scheduler_and_a_worker_start_by_their_commands(socket: Path) -> None:
    with started([*command_of("scheduler", **{"8786": "0"}), "--host", "127.0.0.1"], "Scheduler at:") as lines:
        address = next(line for line in lines if "Scheduler at:" in line).split()[-1]
        worker = command_of("worker", **{"tcp://scheduler:8786": address})
        environment = {"SALMON_REDIS_URL": f"unix://backend:back-secret@{socket}", "SALMON_SCHEDULER": address}
        with (
            started(worker, "Registered to:"),
            started(command_of("backend"), **environment),
            redis.Redis.from_url(f"unix://frontend:front-secret@{socket}", decode_responses=True) as client,
        ):
            poll(lambda: client.get("salmon:backend"), "the heartbeat")
            assert Heartbeat.decode(client.get("salmon:backend")).started_ms > 0


def test_the_proxys_file_is_valid() -> None:
    caddy = shutil.which("caddy")
    if caddy is None:
        pytest.skip("there is no caddy on this machine, so its file was not checked here")
    subprocess.run(
        (caddy, "validate", "--adapter", "caddyfile", "--config", DOCKER / "Caddyfile"),
        env={**os.environ, "SALMON_DOMAIN": ":80"},
        check=True,
        capture_output=True,
    )


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_every_service_has_a_read_only_root_and_no_privileges(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("cap_add", []) == (["NET_BIND_SERVICE"] if name == "proxy" else [])


def test_what_others_wait_for_has_a_health_check() -> None:
    for name, service in COMPOSE["services"].items():
        waited_for = service.get("depends_on", {})
        for other, condition in waited_for.items():
            assert condition == {"condition": "service_healthy"}, name
            assert "healthcheck" in COMPOSE["services"][other], f"{name} waits for {other}"


def test_the_scheduler_s_health_check_tells_whether_it_is_there() -> None:
    check = COMPOSE["services"]["scheduler"]["healthcheck"]["test"]
    assert check[:3] == ["CMD", "/salmon/bin/python", "-c"]
    with started([*command_of("scheduler", **{"8786": "0"}), "--host", "127.0.0.1"], "Scheduler at:") as lines:
        port = next(line for line in lines if "Scheduler at:" in line).split()[-1].rpartition(":")[2]
        code = check[3].replace("8786", port).replace("localhost", "127.0.0.1")
        assert subprocess.run((sys.executable, "-c", code), check=False).returncode == 0
    gone = subprocess.run((sys.executable, "-c", code), check=False, capture_output=True)
    assert gone.returncode != 0


def test_cloud_init_has_keys_and_commands_that_are_there() -> None:
    """The keys of cloud-init's schema that are used, and the commands of ours."""
    text = (DOCKER / "cloud-init.yaml").read_text()
    assert text.startswith("#cloud-config\n")
    content = yaml.safe_load(text)
    assert set(content) <= {"write_files", "package_update", "package_upgrade", "packages", "runcmd"}
    assert all(set(each) <= {"path", "content", "permissions", "owner"} for each in content["write_files"])
    commands = "\n".join(content["runcmd"])
    for line in content["runcmd"]:
        subprocess.run(("sh", "-n", "-c", line), check=True)
    assert (REPOSITORY / "requirements" / "install").exists()
    words = commands.partition(".venv/bin/salmon ")[2].splitlines()[0].split()
    page = subprocess.run((BIN / "salmon", words[0], "--help"), capture_output=True, text=True, check=True).stdout
    assert all(word in page for word in words if word.startswith("--"))
