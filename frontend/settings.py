"""Settings of the web process: read from its environment, once."""

import ipaddress
import re
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

#: The secret of docker/example.env: who leaves it there could be impersonated by anybody.
EXAMPLE_SECRET = "change-me-to-forty-random-characters"  # noqa: S105
#: What paths of our own begin with. A proxy may strip the path that it shows us under or keep it, so it is none of
#: these.
OWN_NAMES = frozenset(
    {"api", "answer", "client", "config", "console", "create_user", "dashboard", "download", "e", "embeddings"}
    | {"healthz", "init", "init_exp", "logs", "media", "meta", "metrics", "openapi.json", "query", "readyz", "reset"}
    | {"responses", "restore", "schema.json", "scripts", "static"}
)
#: A secret that fits into a header as it is.
_PROXY_SECRET = re.compile(r"[!-~]{16,}")
_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)*")


class Settings(BaseSettings):
    """What the web process reads from its environment, once.

    Each variable is `SALMON_` and the name in capitals, such as `SALMON_PUBLIC_URL`.
    """

    model_config = SettingsConfigDict(env_prefix="SALMON_", frozen=True)

    redis_url: str = Field(description="Where Redis is: unix://…, redis:// or rediss:// with user and password.")
    eraser_url: str = Field(
        default="", description="The same with the user `eraser`, who alone may remove answers; used only to erase."
    )
    keep_bundles_days: int = Field(
        default=365, ge=0, description="How long the bundles of deleted experiments are kept, in days; 0: for ever."
    )
    secret: str = Field(
        min_length=16,
        description="Signs tokens and the sessions of participants; the same on every frontend.",
    )
    data: str = Field(default="salmon-data", description="The data directory: media are kept in its folder `media`.")
    host: str = Field(default="127.0.0.1", description="The address to listen on.")
    port: int = Field(default=8421, ge=0, le=65535, description="The port to listen on; 0 selects a free port.")
    share_port: Literal["no", "first", "join"] = Field(
        default="no",
        description="Whether other web processes listen on the same port: first begins to share it, join joins in.",
    )
    public_url: str = Field(
        default="",
        description="The address that participants use, if there is a proxy in front; it may end in a path.",
    )
    trusted_proxies: str = Field(
        default="",
        description="Addresses and networks of the proxies whose word about a request's sender is believed; empty: none.",
    )
    upload_gb: float = Field(default=50, gt=0, description="The largest upload of an experimenter, in GB.")
    session_idle_hours: float = Field(
        default=12, gt=0, le=8760, description="A login in the console ends when it was not used for so many hours."
    )
    session_days: float = Field(
        default=7, gt=0, le=365, description="A login in the console ends after so many days, used or not."
    )
    login_header: str = Field(
        default="",
        pattern=r"^[A-Za-z0-9-]*$",
        description="The header in which a trusted proxy says whom it has logged in, such as X-Remote-User; empty: none.",
    )
    login_header_secret: str = Field(
        default="",
        repr=False,
        validate_default=True,
        description="What that proxy sends as X-Salmon-Proxy-Secret with the header, at least 16 characters.",
    )
    login_name: str = Field(default="your institution", description="Whose login that is, as the login page calls it.")
    login_role: Literal["", "viewer", "experimenter"] = Field(
        default="",
        description="The role of accounts that such a login makes; empty: it only enters accounts that exist.",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", description="What is logged.")
    log_format: Literal["text", "json"] = Field(default="text", description="How a line of the log is written.")
    copies: int = Field(
        default=1,
        ge=1,
        le=5,
        description="On how many disks an answer is before it is confirmed: the store's, its replicas'.",
    )
    bundles_to: str = Field(
        default="",
        description="Where a bundle of every experiment is written each night: an address of fsspec; empty: nowhere.",
    )
    bundles_hour: int = Field(
        default=3, ge=0, le=23, description="The hour (UTC) after which nightly bundles are written."
    )
    disk_warning_mb: int = Field(default=500, ge=0, description="Free space below which the console warns, in MB.")
    prolific_url: str = Field(
        default="https://api.prolific.com", description="Where Prolific's API is; another address is for tests."
    )
    prolific_token: str = Field(
        default="",
        repr=False,
        description="The Prolific token of the server's owner, instead of one on the page Account.",
    )
    sona_url: str = Field(
        default="", description="Where SONA is, for tests; empty: at the school's address in the experiment's file."
    )
    smtp_url: str = Field(
        default="",
        repr=False,
        description="The mail server: smtp://USER:PASSWORD@HOST:587 (with STARTTLS) or smtps://…; empty: no mail is sent.",
    )
    mail_from: str = Field(
        default="", description="The address that mail comes from; empty: the user of SALMON_SMTP_URL."
    )
    webhook_hosts: str = Field(
        default="", description="The hosts that webhooks of experiments may be sent to, with commas; empty: none."
    )
    log_directory: str = Field(default="", description="Where each process writes a log file; empty: standard error.")

    @field_validator("secret")
    @classmethod
    def _check_secret(cls, secret: str) -> str:
        if secret == EXAMPLE_SECRET:
            raise ValueError(
                "this is the secret of docker/example.env, which everybody knows; write another into .env, such as the"
                " output of `openssl rand -base64 30`"
            )
        return secret

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, address: str) -> str:
        address = address.strip().rstrip("/")
        if not address:
            return ""
        parts = urlsplit(address)
        if parts.scheme not in {"http", "https"} or not parts.netloc or parts.query or parts.fragment:
            raise ValueError(
                f"{address!r} is no address of a server; write it as in a browser, such as https://lab.example.edu/salmon"
            )
        if not _PATH.fullmatch(parts.path):
            raise ValueError(f"the path {parts.path!r} may have letters, digits, dots, dashes and underscores only")
        first = parts.path.split("/")[1] if parts.path else ""
        if first in OWN_NAMES:
            raise ValueError(f"pages of Salmon's own begin with /{first}; choose another path, such as /salmon")
        return address

    @field_validator("trusted_proxies")
    @classmethod
    def _check_trusted_proxies(cls, proxies: str) -> str:
        for each in filter(None, (part.strip() for part in proxies.split(","))):
            try:
                if each != "*":
                    ipaddress.ip_network(each)
            except ValueError:
                raise ValueError(
                    f"{each!r} is neither an address nor a network; write them as in 10.0.0.5,192.168.0.0/24"
                ) from None
        return proxies

    @field_validator("login_header_secret")
    @classmethod
    def _check_login_header_secret(cls, secret: str, info: ValidationInfo) -> str:
        """Refuse a login header that any program which reaches this server could send."""
        if not info.data.get("login_header"):
            return secret
        if not _PROXY_SECRET.fullmatch(secret):
            raise ValueError(
                "SALMON_LOGIN_HEADER needs a secret of at least 16 characters without spaces, which the proxy sends as"
                " X-Salmon-Proxy-Secret: any program of the proxy's machine could send the header alone"
            )
        if not info.data.get("trusted_proxies"):
            raise ValueError(
                "SALMON_LOGIN_HEADER needs the address of the proxy that sends it in SALMON_TRUSTED_PROXIES"
            )
        return secret

    @property
    def institution(self) -> str:
        """Whose login the login page offers; empty where there is none."""
        return self.login_name if self.login_header else ""

    @property
    def mount(self) -> str:
        """The path under which a proxy shows this server, such as "/salmon"; "" where that is the top of its host."""
        return urlsplit(self.public_url).path

    @property
    def media_location(self) -> str:
        """Where target files are kept."""
        return self._folder("media")

    @property
    def bundles_location(self) -> str:
        """Where the bundles are kept that are written before an experiment is deleted."""
        return self._folder("bundles")

    def _folder(self, name: str) -> str:
        return f"{self.data.rstrip('/')}/{name}" if "://" in self.data else str(Path(self.data) / name)
