"""`salmon doctor` against real misconfigurations: an nginx with one line wrong, a server
started wrongly, a bad machine.
"""

import asyncio
import datetime as dt
import ipaddress
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from frontend.doctor import machine, outside
from frontend.doctor.machine import examine_machine
from frontend.doctor.outside import Finding, examine_address
from tests.nginx import Nginx, free_port
from tests.program import REPOSITORY, Program

MOUNT = "/salmon/"


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Nginx:
    """The right proxy; the server behind it takes its address for its own."""
    return Nginx(tmp_path_factory.mktemp("nginx"), free_port(), MOUNT)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, nginx: Nginx) -> Iterator[Program]:
    """Salmon behind nginx, under a path."""
    options = ("--public-url", nginx.address, "--trusted-proxies", "127.0.0.1")
    with nginx, Program(tmp_path_factory.mktemp("data"), options=options, port=nginx.upstream) as started:
        started.wait_until_ready()
        yield started


def examine(address: str, upload_mb: int = 200) -> dict[str, Finding]:
    """The findings about an address by their names; of those of one name, the worst."""
    found = asyncio.run(examine_address(address, upload_mb=upload_mb))
    rank = {"ok": 0, "warning": 1, "problem": 2}
    return {each.check: each for each in sorted(found, key=lambda each: rank[each.level])}


def problems(found: dict[str, Finding]) -> list[str]:
    return sorted(check for check, each in found.items() if each.level == "problem")


def test_the_configuration_of_the_manual_has_no_problem(program: Program, nginx: Nginx) -> None:
    found = examine(nginx.address)
    assert problems(found) == []
    assert {"reachable", "ready", "path", "sender", "cookies", "clock", "live pages", "uploads"} <= set(found)
    assert "keeps" in found["path"].message or "passes the path on" in found["path"].message
    done = program.run("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{nginx.address} answers in" in done.stdout
    assert "0 problems" in done.stdout


@pytest.mark.parametrize(
    ("line", "instead", "check", "words"),
    [
        ("client_max_body_size 0;", "", "uploads", "refused as too large"),
        ("client_max_body_size 0;", "client_max_body_size 10m;", "uploads", "client_max_body_size 0"),
        (
            "proxy_read_timeout 60s;",  # what is compressed is not passed on until a buffer is full
            "proxy_ignore_headers X-Accel-Buffering; proxy_buffering on; gzip on; gzip_types *; gzip_proxied any;",
            "live pages",
            "holds events back",
        ),
        ("proxy_read_timeout 60s;", "proxy_hide_header Set-Cookie;", "cookies", "nobody can log in"),
        ("proxy_read_timeout 60s;", "proxy_cookie_path /salmon/ /else/;", "cookies", "proxy_cookie_path"),
        ("proxy_read_timeout 60s;", "location /salmon/api/ { return 403; }", "path", "a proxy keeps /api from it"),
        ("location /salmon/", "location /other/", "path", "Something else answers"),
    ],
)
def test_a_wrong_line_of_the_proxy_is_named(
    program: Program, nginx: Nginx, tmp_path: Path, line: str, instead: str, check: str, words: str
) -> None:
    assert program.running
    with Nginx(tmp_path / "nginx", nginx.upstream, MOUNT, changes=((line, instead),)) as wrong:
        found = examine(wrong.address)
    assert found[check].level == "problem", found
    assert words in f"{found[check].message} {found[check].hint}"


def test_another_address_than_the_servers_own_is_named(program: Program, nginx: Nginx) -> None:
    """Two more: the right host without the path, and the port past the proxy."""
    assert program.running
    past = examine(f"http://127.0.0.1:{nginx.upstream}")
    assert problems(past) == ["path"]
    assert f"takes {nginx.address} to be its address" in past["path"].message


def test_a_path_where_salmon_is_not_is_told_apart_from_where_it_is(program: Program, nginx: Nginx) -> None:
    assert program.running
    found = examine(f"http://127.0.0.1:{nginx.upstream}/salmon2")
    assert problems(found) == ["path"]
    assert f"Salmon is at http://127.0.0.1:{nginx.upstream}, not at" in found["path"].message


def test_a_proxy_without_a_server_behind_it_is_named(tmp_path: Path) -> None:
    with Nginx(tmp_path / "nginx", free_port(), MOUNT) as alone:
        found = examine(alone.address)
    assert problems(found) == ["reachable"]
    assert "it does not reach Salmon" in found["reachable"].message


def test_a_redirect_is_followed_by_words(program: Program, nginx: Nginx, tmp_path: Path) -> None:
    assert program.running
    line = ("proxy_http_version 1.1;", "return 301 https://lab.example.edu$request_uri;")
    with Nginx(tmp_path / "nginx", nginx.upstream, MOUNT, changes=(line,)) as redirecting:
        found = examine(redirecting.address)
    assert "redirects to https://lab.example.edu/salmon/healthz" in found["reachable"].message
    assert "salmon doctor https://lab.example.edu/salmon" in found["reachable"].hint


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://127.0.0.1:PORT", "takes no connections"),
        ("https://no-such-host.invalid", "no host called no-such-host.invalid"),
        ("gopher://x", "is no address"),
        ("https://127.0.0.1:UPSTREAM", "does not speak HTTPS"),
    ],
)
def test_a_server_that_is_not_there_is_named(program: Program, nginx: Nginx, address: str, words: str) -> None:
    assert program.running
    filled = address.replace("PORT", str(free_port())).replace("UPSTREAM", str(nginx.upstream))
    (only,) = examine(filled).values()
    assert only.level == "problem"
    assert words in only.message, only


def test_a_server_that_was_told_nothing_is_named(tmp_path: Path) -> None:
    """Without its address and without trust in its proxy, under another name than it is called by."""
    nginx = Nginx(
        tmp_path / "nginx",
        free_port(),
        changes=(("proxy_set_header Host $http_host;", "proxy_set_header Host inside;"),),
    )
    environment = {"SALMON_TRUSTED_PROXIES": "10.9.8.7"}
    options = ("--host", "0.0.0.0")
    with nginx, Program(tmp_path / "data", environment, options, port=nginx.upstream) as program:
        program.address = f"http://127.0.0.1:{nginx.upstream}"
        program.wait_until_ready()
        found = examine(nginx.address)
    assert "calls the server 'inside'" in found["host"].message
    assert f"--public-url {nginx.address}" in found["host"].hint
    assert "SALMON_TRUSTED_PROXIES" in found["sender"].hint
    assert found["sender"].level == "problem"
    assert "past the proxy" in found["listens"].message


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Authority":
    """An authority that this process accepts certificates of."""
    made = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    return made


class Authority:
    """Makes certificates for 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a test")])
        self.write("authority", self.name, self.key, days=365, authority=True)

    def write(
        self, name: str, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int, authority: bool = False
    ) -> tuple[Path, Path]:
        now = dt.datetime.now(dt.UTC)
        address = x509.SubjectAlternativeName([x509.IPAddress(LOOPBACK)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=400))
            .not_valid_after(now + dt.timedelta(days=days, hours=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(address, critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if authority:
            usage = dict.fromkeys(
                ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
                False,
            )
            builder = builder.add_extension(
                x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False),
                critical=True,
            )
        made = builder.sign(self.key, hashes.SHA256())
        certificate, private = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, private

    def issue(self, name: str, days: int) -> tuple[Path, Path]:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self.write(name, subject, ec.generate_private_key(ec.SECP256R1()), days=days)


LOOPBACK = ipaddress.ip_address("127.0.0.1")


@pytest.mark.parametrize(
    ("days", "level", "words"),
    [(90, "ok", "in 90 days"), (5, "warning", "in 5 days"), (-2, "problem", "expired")],
)
def test_the_end_of_a_certificate_is_told(
    program: Program, nginx: Nginx, authority: Authority, tmp_path: Path, days: int, level: str, words: str
) -> None:
    assert program.running
    certificate = authority.issue("server", days)
    with Nginx(tmp_path / "tls", nginx.upstream, MOUNT, certificate=certificate) as secure:
        found = examine(secure.address)
    assert (found["certificate"].level, words in found["certificate"].message) == (level, True), found


def test_a_certificate_of_nobody_is_refused(
    program: Program, nginx: Nginx, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program.running
    certificate = authority.issue("server", 90)
    monkeypatch.delenv("SSL_CERT_FILE")
    with Nginx(tmp_path / "tls", nginx.upstream, MOUNT, certificate=certificate) as secure:
        (only,) = examine(secure.address).values()
    assert (only.check, only.level) == ("certificate", "problem")
    assert "Browsers do not accept the certificate of 127.0.0.1" in only.message


@pytest.mark.parametrize(("seconds", "level"), [(1, "ok"), (8, "warning"), (-90, "problem")])
def test_a_clock_that_differs_is_told(
    program: Program, nginx: Nginx, monkeypatch: pytest.MonkeyPatch, seconds: int, level: str
) -> None:
    assert program.running
    real = outside.time
    monkeypatch.setattr(outside, "time", SimpleNamespace(time=lambda: real.time() + seconds, monotonic=real.monotonic))
    found = examine(nginx.address)
    assert found["clock"].level == level
    assert level == "ok" or ("behind" if seconds > 0 else "ahead of") in found["clock"].message


def test_a_missing_learning_process_is_told(tmp_path: Path) -> None:
    with Program(tmp_path) as program:
        program.wait_until_ready()
        assert examine(program.address)["ready"].level == "ok"
        program.child("redis").suspend()
        try:
            found = examine(program.address)
        finally:
            program.child("redis").resume()
    assert found["ready"].level == "problem"
    assert "Redis does not respond" in found["ready"].message


def test_a_good_machine_has_no_problem(program: Program) -> None:
    found = {each.check: each for each in examine_machine(program.data)}
    assert {"python", "torch", "store", "disk", "fsync"} <= set(found)
    assert [each for each in found.values() if each.level == "problem"] == []
    assert not list(program.data.glob(".doctor*")), "nothing is left behind"


def test_a_bad_machine_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials.json").write_text("{}")
    (tmp_path / "credentials.json").chmod(0o644)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=50e6))
    real = machine.time
    ticks = iter(range(10_000))
    monkeypatch.setattr(machine, "time", SimpleNamespace(perf_counter=lambda: next(ticks) * 0.3))
    found = {each.check: each for each in examine_machine(tmp_path)}
    assert real is not machine.time
    assert {check for check, each in found.items() if each.level == "problem"} == {"disk", "fsync", "secrets"}
    assert "takes 300.0 ms" in found["fsync"].message
    assert "chmod 600" in found["secrets"].hint


def test_a_directory_that_cannot_be_written_is_told() -> None:
    found = {each.check: each for each in examine_machine(Path("/proc"))}
    assert found["fsync"].level == "problem"
    assert "Nothing can be written to /proc" in found["fsync"].message


def test_a_store_that_is_too_old_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "redis-server"
    old.write_text("#!/bin/sh\necho 'Redis server v=6.2.14 sha=0 malloc=libc bits=64'\n")
    old.chmod(0o755)
    monkeypatch.setattr(machine, "find_server", lambda: old)
    found = {each.check: each for each in examine_machine(tmp_path)}
    assert (found["store"].level, found["store"].message) == ("problem", "Redis 6.2 is too old.")


def test_findings_are_printed_for_programs_with_an_exit_code() -> None:
    command = (
        sys.executable,
        "-m",
        "salmon",
        "doctor",
        f"http://127.0.0.1:{free_port()}",
        "--json",
        "--data",
        "/nowhere",
    )
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 1
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["check"], finding["level"]) == ("reachable", "problem")
    assert finding["hint"]


def test_without_an_address_and_a_server_it_asks_for_one() -> None:
    command = (sys.executable, "-m", "salmon", "doctor", "--data", "/nowhere")
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no address was given" in done.stderr
