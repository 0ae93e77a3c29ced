"""The systemd unit: systemd takes it, it is hardened, and what it starts is what `salmon serve` reads."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from salmon.cli.install_service import STATE, StartedService, quote, steps_after, unit_of
from tests.program import REPOSITORY

#: The most that `systemd-analyze security` may give, of 10: below 2 it says OK.
MOST_EXPOSURE = 2.0


def service(**changed: object) -> StartedService:
    values = {
        "python": Path(sys.executable),
        "data": STATE,
        "host": "127.0.0.1",
        "port": 8421,
        "public_url": "https://lab.example.edu/salmon",
        "trusted_proxies": "127.0.0.1",
        "user": "salmon",
    }
    return StartedService(**{**values, **changed})  # type: ignore[arg-type]


UNITS = {
    "system": service(),
    "system with data elsewhere": service(data=Path("/srv/my data/100%")),
    "user": service(user="", data=Path("/home/ada/salmon-data"), public_url="", trusted_proxies=""),
}


@pytest.fixture
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("there is no systemd-analyze on this machine, so the unit was not checked here")
    return found


@pytest.mark.parametrize("name", UNITS)
def test_systemd_takes_the_unit(analyze: str, tmp_path: Path, name: str) -> None:
    path = tmp_path / "salmon.service"
    path.write_text(unit_of(UNITS[name]))
    done = subprocess.run((analyze, "verify", "--man=no", path), capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "salmon.service" in line]
    assert (done.returncode, complaints) == (0, [])


@pytest.mark.parametrize("name", ["system", "system with data elsewhere"])
def test_the_unit_is_hardened(analyze: str, tmp_path: Path, name: str) -> None:
    path = tmp_path / "salmon.service"
    path.write_text(unit_of(UNITS[name]))
    done = subprocess.run(
        (analyze, "security", "--offline=yes", "--no-pager", path), capture_output=True, text=True, check=False
    )
    found = re.search(r"Overall exposure level for salmon\.service: ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= MOST_EXPOSURE, done.stdout


def test_a_wrong_unit_is_noticed(analyze: str, tmp_path: Path) -> None:
    path = tmp_path / "salmon.service"
    path.write_text(unit_of(service(python=Path("/no/such/python"))))
    done = subprocess.run((analyze, "verify", "--man=no", path), capture_output=True, text=True, check=False)
    assert done.returncode != 0


def test_words_of_the_command_stay_as_they_are() -> None:
    awkward = service(data=Path('/srv/my "data"/100%/$HOME'))
    line = next(line for line in unit_of(awkward).splitlines() if line.startswith("ExecStart="))
    words = shlex.split(line.removeprefix("ExecStart=").replace("%%", "%").replace("$$", "$"))
    assert words[words.index("--data") + 1] == '/srv/my "data"/100%/$HOME'
    assert quote("plain") == "plain"


def test_the_command_is_one_that_serve_takes(tmp_path: Path) -> None:
    made = service(data=tmp_path, port=1)
    words = shlex.split(made.command)
    help_page = subprocess.run(
        (*words[:4], "--help"), cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    for option in (word for word in words if word.startswith("--")):
        assert option in help_page


def test_only_the_data_can_be_written() -> None:
    assert "StateDirectory=salmon\n" in unit_of(UNITS["system"])
    assert "ReadWritePaths" not in unit_of(UNITS["system"])
    assert 'ReadWritePaths="/srv/my data/100%%"\n' in unit_of(UNITS["system with data elsewhere"])
    for each in UNITS.values():
        assert "ProtectSystem=strict\n" in unit_of(each)
        assert "NoNewPrivileges=yes\n" in unit_of(each)


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "salmon", "install-service", *arguments)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)


def test_the_unit_is_printed_or_written_with_what_to_do_next(tmp_path: Path) -> None:
    printed = run(tmp_path)
    assert printed.stdout.startswith("[Unit]\n")
    assert "--write" in printed.stderr
    address = ("--public-url", "https://lab.example.edu/salmon")
    written = run(tmp_path, "--write", *address, "--trusted-proxies", "127.0.0.1")
    path = tmp_path / ".config/systemd/user/salmon.service"
    assert f"{' '.join(address)} --trusted-proxies 127.0.0.1\n" in path.read_text()
    assert "systemctl --user enable --now salmon" in written.stdout
    assert (tmp_path / "salmon-data").stat().st_mode & 0o777 == 0o700


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / ".config").write_text("a file")
    done = run(tmp_path, "--write")
    assert done.returncode == 1
    assert "The unit cannot be written to" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_steps_make_the_user_and_the_directory() -> None:
    steps = "\n".join(steps_after(UNITS["system with data elsewhere"]))
    assert "useradd --system" in steps
    assert "install -d -m 700 -o salmon" in steps
