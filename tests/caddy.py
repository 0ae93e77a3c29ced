"""A real Caddy in front of the program, configured by the lines that the manual gives."""

import re
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from tests.nginx import free_port
from tests.program import REPOSITORY, poll

#: Without the administration at port 2019 and without certificates: the tests speak HTTP on this machine.
_GLOBAL = "{\n\tadmin off\n\tauto_https off\n}\n"


def lines_of_the_manual() -> str:
    """The lines for Caddy in docs/deployment.md."""
    found = re.search(r"```caddy\n(.*?)```", (REPOSITORY / "docs" / "deployment.md").read_text(), re.DOTALL)
    assert found
    return found[1]


def lines_of_compose() -> str:
    """The Caddyfile of docker-compose.yml."""
    return (REPOSITORY / "docker" / "Caddyfile").read_text()


@dataclass
class Caddy:
    """Caddy on a free port of this machine while a `with` block runs, in front of a port of Salmon's.

    At the top of the host it has the lines of compose, and under a path those of the manual, unless it has `lines` of
    its own, for `lab.example.edu` and `127.0.0.1:8421`.
    """

    folder: Path
    upstream: int
    path: str = "/"
    lines: str = ""
    port: int = 0
    _process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it shows Salmon."""
        return f"http://127.0.0.1:{self.port}{self.path}".rstrip("/")

    def __post_init__(self) -> None:
        self.port = self.port or free_port()

    def __enter__(self) -> Self:
        program = shutil.which("caddy")
        if program is None:
            pytest.skip("there is no Caddy on this machine, so this test was not run (install the package caddy)")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "Caddyfile").write_text(self._configuration())
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                (program, "run", "--config", "Caddyfile", "--adapter", "caddyfile"),
                cwd=self.folder,
                env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"},
                stdout=log,
                stderr=log,
            )
        poll(self._listens, "Caddy to listen")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(20)

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        with socket.create_connection(("127.0.0.1", self.port), 1):
            return True

    def _configuration(self) -> str:
        upstream, host = f"127.0.0.1:{self.upstream}", f"http://127.0.0.1:{self.port}"
        if self.lines:
            pairs, lines = (("lab.example.edu", host), ("127.0.0.1:8421", upstream)), self.lines
        elif self.path == "/":
            pairs, lines = (("{$SALMON_DOMAIN}", host), ("frontend:8421", upstream)), lines_of_compose()
        else:
            pairs, lines = (("lab.example.edu", host), ("127.0.0.1:8421", upstream)), lines_of_the_manual()
            assert self.path == "/salmon/", "the manual's path"
        for old, new in pairs:
            assert old in lines, f"the configuration has no {old!r}"
            lines = lines.replace(old, new)
        return _GLOBAL + lines
