"""A real nginx in front of the program, configured by the lines that the manual gives."""

import os
import re
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from tests.program import REPOSITORY, poll

_CONFIGURATION = """\
daemon off;
worker_processes 1;
pid FOLDER/nginx.pid;
error_log FOLDER/error.log;
USER
events {}
http {
  access_log off;
  client_body_temp_path FOLDER/body;
  proxy_temp_path FOLDER/proxy;
  fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi;
  scgi_temp_path FOLDER/scgi;
  server {
    listen 127.0.0.1:PORT TLS;
LOCATION
  }
}
"""


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def location_of_the_manual() -> str:
    """The lines for nginx in docs/deployment.md."""
    text = (REPOSITORY / "docs" / "deployment.md").read_text()
    found = re.search(r"```nginx\n(.*?)```", text, re.DOTALL)
    assert found
    return found[1]


@dataclass
class Nginx:
    """nginx on a free port of this machine while a `with` block runs, in front of a port of Salmon's.

    `path` is where it shows Salmon, and `strips` whether it takes that path away. `changes` are pairs of a line of the
    manual's configuration and what stands in its place. `lines` are others in its place.
    """

    folder: Path
    upstream: int
    path: str = "/"
    strips: bool = False
    changes: tuple[tuple[str, str], ...] = ()
    lines: str = ""
    certificate: tuple[Path, Path] | None = None
    port: int = 0
    _process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it shows Salmon."""
        scheme = "https" if self.certificate else "http"
        return f"{scheme}://127.0.0.1:{self.port}{self.path}".rstrip("/")

    def __post_init__(self) -> None:
        self.port = self.port or free_port()

    def __enter__(self) -> Self:
        program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if program is None:
            pytest.skip("there is no nginx on this machine, so this test was not run (install the package nginx-light)")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "nginx.conf").write_text(self._configuration())
        self._process = subprocess.Popen((program, "-p", self.folder, "-c", self.folder / "nginx.conf", "-e", "stderr"))
        poll(self._listens, "nginx to listen")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(20)

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "nginx ended"
        with socket.create_connection(("127.0.0.1", self.port), 1):
            return True

    def _configuration(self) -> str:
        location = self.lines or location_of_the_manual()
        target = f"http://127.0.0.1:{self.upstream}"
        pairs = (
            ("location /salmon/", f"location {self.path.rstrip('/')}/"),
            ("proxy_pass http://127.0.0.1:8421;", f"proxy_pass {target}{'/' if self.strips else ''};"),
            *self.changes,
        )
        for old, new in () if self.lines else pairs:
            assert old in location, f"the manual's configuration has no {old!r}"
            location = location.replace(old, new)
        tls = ""
        if self.certificate:
            certificate, key = self.certificate
            tls = "ssl"
            location = f"ssl_certificate {certificate}; ssl_certificate_key {key};\n{location}"
        filled = _CONFIGURATION.replace("FOLDER", str(self.folder)).replace("PORT TLS", f"{self.port} {tls}")
        user = "user root;" if os.getuid() == 0 else ""
        return filled.replace("USER", user).replace("LOCATION", location)
