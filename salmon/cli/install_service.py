"""Implement `salmon install-service`: a systemd unit that starts Salmon with the machine, and
lets it do no more than it needs.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from salmon.errors import StartError

SYSTEM_UNIT = Path("/etc/systemd/system/salmon.service")
#: Where the data of a system service are, and the user that owns them, unless they are named.
STATE = Path("/var/lib/salmon")
SYSTEM_USER = "salmon"

#: Limits that hold without privileges, so also in a unit of one's own.
_ALWAYS = """\
NoNewPrivileges=yes
ProtectSystem=strict
PrivateTmp=yes
LockPersonality=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
UMask=0077
"""
#: Limits that only the system's own manager can set. MemoryDenyWriteExecute is missing: numba compiles while it runs.
_SYSTEM = """\
CapabilityBoundingSet=
AmbientCapabilities=
PrivateDevices=yes
PrivateUsers=yes
ProtectHome=read-only
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RemoveIPC=yes
"""


@dataclass(frozen=True)
class StartedService:
    """What a unit starts: which Python, on which data directory, at which address, and for the system as which user."""

    python: Path
    data: Path
    host: str
    port: int
    public_url: str
    trusted_proxies: str
    user: str

    @property
    def command(self) -> str:
        """The command line, quoted as systemd reads it."""
        words = [str(self.python), "-m", "salmon", "serve", "--data", str(self.data)]
        words += ["--host", self.host, "--port", str(self.port)]
        words += ["--public-url", self.public_url] if self.public_url else []
        words += ["--trusted-proxies", self.trusted_proxies] if self.trusted_proxies else []
        return " ".join(quote(word) for word in words)


def install_service(
    system: Annotated[
        bool, typer.Option("--system/--user", help="For the whole machine, or for your own account.")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Write the unit where systemd finds it; else print it.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="The data directory; by default /var/lib/salmon, or salmon-data in your home directory."),
    ] = None,
    port: Annotated[int, typer.Option(help="The port of the web pages.", min=1, max=65535)] = 8421,
    host: Annotated[str, typer.Option(help="127.0.0.1 for this machine and its proxy alone.")] = "127.0.0.1",
    public_url: Annotated[str, typer.Option(help="The address that participants use, if a proxy is in front.")] = "",
    trusted_proxies: Annotated[
        str, typer.Option(help="Addresses and networks of the proxies that are believed about who sends a request.")
    ] = "",
    run_as: Annotated[str, typer.Option(help="The user that the system's service runs as.")] = SYSTEM_USER,
) -> None:
    """Print a systemd unit that starts Salmon with the machine, or write it with --write.

    Example: sudo salmon install-service --system --write --public-url https://lab.example.edu/salmon
    """
    home = STATE if system else Path.home() / "salmon-data"
    service = StartedService(
        python=Path(sys.executable),
        data=Path(os.path.abspath((data or home).expanduser())),  # noqa: PTH100 - links in the path stay as they are
        host=host,
        port=port,
        public_url=public_url,
        trusted_proxies=trusted_proxies,
        user=run_as if system else "",
    )
    text = unit_of(service)
    path = SYSTEM_UNIT if system else Path.home() / ".config" / "systemd" / "user" / SYSTEM_UNIT.name
    if not write:
        print(text, end="")
        print(f"Save this as {path}, or run the command again with --write.", file=sys.stderr)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if not system:
            service.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StartError(
            f"The unit cannot be written to {path}: {error.strerror or error}.",
            hint="Run the command with sudo, or with --user for your own account.",
        ) from error
    print(f"Written: {path}. Start it, now and with the machine:")
    for line in steps_after(service):
        print(f"  {line}")


def unit_of(service: StartedService) -> str:
    """Return the text of the unit."""
    system = bool(service.user)
    managed = system and service.data == STATE
    owner = f"User={service.user}\n" if system else ""
    place = (
        "StateDirectory=salmon\nStateDirectoryMode=0700\n"
        if managed
        else f"ReadWritePaths={quote(str(service.data))}\n"
    )
    return (
        "[Unit]\n"
        "Description=Salmon, which asks people which of two things is more like a third\n"
        "Wants=network-online.target\n"
        "After=network-online.target\n"
        "\n"
        "[Service]\n"
        "Type=exec\n"
        f"{owner}"
        f"ExecStart={service.command}\n"
        "Restart=on-failure\n"
        "RestartSec=2\n"
        "# The supervisor stops its processes in order; what is left after that is killed.\n"
        "KillMode=mixed\n"
        "TimeoutStopSec=60\n"
        "LimitNOFILE=65536\n"
        "# Compiled loops are kept here: nothing else but the data can be written.\n"
        "CacheDirectory=salmon\n"
        "Environment=NUMBA_CACHE_DIR=%C/salmon MPLCONFIGDIR=%C/salmon\n"
        f"{place}"
        f"{_ALWAYS}{_SYSTEM if system else ''}"
        "\n"
        "[Install]\n"
        f"WantedBy={'multi-user.target' if system else 'default.target'}\n"
    )


def steps_after(service: StartedService) -> list[str]:
    """Return the commands that begin to use a unit which was written."""
    if not service.user:
        return [
            "systemctl --user daemon-reload",
            "systemctl --user enable --now salmon",
            "loginctl enable-linger      # keeps it running when you log out",
            "journalctl --user -u salmon # shows the link that creates the owner's account",
        ]
    user, data = service.user, service.data
    return [
        f"id {user} >/dev/null 2>&1 || useradd --system --home-dir {STATE} {user}",
        *([] if data == STATE else [f"install -d -m 700 -o {user} {quote(str(data))}"]),
        "systemctl daemon-reload",
        "systemctl enable --now salmon",
        "journalctl -u salmon        # shows the link that creates the owner's account",
    ]


def quote(word: str) -> str:
    """Return a word of a command line as systemd reads it: specifiers and variables are
    none, and spaces do not divide it.
    """
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{word}"' if any(character.isspace() or character in "\"';" for character in word) else word
