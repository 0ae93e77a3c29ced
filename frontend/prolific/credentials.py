"""The accounts' tokens for Prolific, each in a file of its own that only the server reads.

The store never holds them, so neither a user of Redis nor a bundle nor an export can show them. A file also holds the
secret with which Prolific signs its webhooks, and its name is a digest of the account's id, which the address of the
webhook carries. Where the data directory is no folder of this machine, only the environment can give a token.
"""

import json
import re
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path

from frontend.errors import BadRequestError, ConflictError
from salmon.cli.data_directory import write_private

#: The form of a token; Prolific's are shorter.
_TOKEN = re.compile(r"[\x21-\x7e]{16,512}")
_REFERENCE = re.compile(r"[0-9a-f]{32}")
#: The reference of the file that goes with the token of the environment.
_OWNERS = "the owner of the server"


@dataclass(frozen=True)
class ProlificAccount:
    """What an account needs at Prolific: its token and workspace, and the secret of its webhooks once there are some.

    Neither secret is in the text of this object, so that no log can hold it. `from_environment` where the token is.
    """

    token: str = field(repr=False)
    workspace: str = ""
    workspace_name: str = ""
    webhook_secret: str = field(default="", repr=False)
    from_environment: bool = False


def reference_of(account: str) -> str:
    """Return the name of an account's file, which says nothing about the account."""
    return sha256(f"prolific {account}".encode()).hexdigest()[:32]


def read_token(written: str) -> str:
    """Return a token as it was entered, without blanks around it; BadRequestError where it cannot be one."""
    token = written.strip()
    if not _TOKEN.fullmatch(token):
        raise BadRequestError(
            "This is no token of Prolific: it has characters or a length that tokens do not have.",
            hint="Copy it from Prolific again: Settings, then API tokens.",
            where="token",
        )
    return token


@dataclass(frozen=True)
class CredentialFiles:
    """The files of all accounts. `environment_token` is that of the server's owner, from the environment."""

    data: str
    environment_token: str = field(default="", repr=False)

    def read(self, account: str, *, owner: bool) -> ProlificAccount | None:
        """Return the credentials of an account; None where it has none."""
        kept = self.read_file(reference_of(account))
        if kept is not None and kept.token:
            return kept
        if owner and self.environment_token:
            found = self.read_file(self.reference(account, owner=True)) or ProlificAccount("")
            return ProlificAccount(
                self.environment_token,
                found.workspace,
                found.workspace_name,
                found.webhook_secret,
                from_environment=True,
            )
        return None

    def reference(self, account: str, *, owner: bool) -> str:
        """Return the name of the file in which the webhook's secret of an account is kept."""
        kept = self.read_file(reference_of(account))
        own = (kept is not None and kept.token) or not (owner and self.environment_token)
        return reference_of(account) if own else reference_of(_OWNERS)

    def read_file(self, reference: str) -> ProlificAccount | None:
        """Return the credentials in the file of this name, which the address of a webhook
        gives; None where there is none.
        """
        if not _REFERENCE.fullmatch(reference) or "://" in self.data:
            return None
        try:
            values = json.loads(self._path(reference).read_text(encoding="utf-8"))
            token, workspace, name, secret = (str(values.get(name, "")) for name in _KEPT)
            return ProlificAccount(token, workspace, name, secret)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, AttributeError) as error:
            raise ConflictError(
                "The file with your Prolific token cannot be read.", hint="Enter the token again on the page Account."
            ) from error

    def write(self, reference: str, credentials: ProlificAccount) -> None:
        """Keep credentials in a file that only the server's user reads; it is replaced at once, never half written."""
        if "://" in self.data:
            raise ConflictError(
                "The data directory of this server is no folder, so it cannot keep a token.",
                hint="Its operator can set SALMON_PROLIFIC_TOKEN for the owner of the server.",
            )
        path = self._path(reference)
        values = {name: value for name, value in asdict(credentials).items() if name in _KEPT}
        if credentials.from_environment:
            values["token"] = ""
        try:
            write_private(path, json.dumps(values))
        except OSError as error:
            raise ConflictError(
                f"The token cannot be kept: {error.strerror or error}.",
                hint="Nothing was changed. The operator of this server can make room, or the folder writable.",
            ) from error

    def remove(self, account: str) -> bool:
        """Remove the file of an account, and return whether there was one."""
        if "://" in self.data:
            return False
        try:
            self._path(reference_of(account)).unlink()
        except FileNotFoundError:
            return False
        return True

    def _path(self, reference: str) -> Path:
        return Path(self.data) / "prolific" / f"{reference}.json"


_KEPT = ("token", "workspace", "workspace_name", "webhook_secret")
