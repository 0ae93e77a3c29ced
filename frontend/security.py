"""Signatures and passwords: what proves that a token, a session or an invitation was made by this server."""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from itsdangerous import BadSignature, URLSafeSerializer, URLSafeTimedSerializer

from frontend.errors import ForgedError
from salmon.records import Served
from salmon.wire import decode_served, encode_served

#: A login lasts a working day.
LOGIN_SECONDS = 12 * 3600
#: An invitation expires after a week.
INVITATION_SECONDS = 7 * 24 * 3600
#: Longer texts were not signed by this server and are not hashed.
LONGEST_TOKEN = 4096


@dataclass(frozen=True)
class Session:
    """What a participant's page carries: which experiment, who, and which opening of the page."""

    experiment: str
    participant: str
    session: str


@dataclass(frozen=True)
class Login:
    """What an experimenter's cookie carries: the account, the CSRF token, and a mark of the password."""

    name: str
    csrf: str
    mark: str

    def fits(self, password_hash: str) -> bool:
        """Return whether the account still has the password that this session began with."""
        return secrets.compare_digest(self.mark, _mark(password_hash))


class Signer:
    """Signer and checker of texts; each purpose has its own salt, so that one kind never passes for another."""

    def __init__(self, secret: str) -> None:
        options: dict[str, Any] = {"digest_method": hashlib.sha256}
        self._tokens = URLSafeSerializer(secret, salt="token", signer_kwargs=options)
        self._sessions = URLSafeSerializer(secret, salt="session", signer_kwargs=options)
        self._invitations = URLSafeTimedSerializer(secret, salt="invitation", signer_kwargs=options)
        self._tryouts = URLSafeTimedSerializer(secret, salt="tryout", signer_kwargs=options)
        self._logins = URLSafeTimedSerializer(secret, salt="login", signer_kwargs=options)

    def sign_served(self, served: Served) -> str:
        """Return the token of a served query: everything about it, unforgeable."""
        return self._text(self._tokens.dumps(encode_served(served)))

    def read_served(self, token: str) -> Served:
        """Return the served query that a token stands for."""
        payload = self._payload(self._tokens, token, "The token of this answer")
        try:
            return decode_served(payload)
        except (TypeError, ValueError) as error:
            raise ForgedError("The token of this answer is of a version that is not known here.") from error

    def sign_session(self, session: Session) -> str:
        """Return the key that a participant's page sends with each request."""
        return self._text(self._sessions.dumps([session.experiment, session.participant, session.session]))

    def read_session(self, key: str) -> Session:
        """Return who sends a request."""
        return Session(*self._payload(self._sessions, key, "The session of this page"))

    def sign_first_invitation(self) -> str:
        """Return the invitation to make the owner's account; it works until an account exists."""
        return self.sign_invitation("")

    def sign_invitation(self, name: str) -> str:
        """Return the invitation to make an account of this name; it works until the account exists."""
        return self._text(self._invitations.dumps(name))

    def read_invitation(self, invitation: str) -> str | None:
        """Return whom a link invites: a name, or "" for the owner; None when it was not made here, or is too old."""
        try:
            return str(self._invitations.loads(invitation[:LONGEST_TOKEN], max_age=INVITATION_SECONDS))
        except (BadSignature, ValueError, TypeError):
            return None

    def sign_tryout(self, experiment: str) -> str:
        """Return the key with which somebody walks through an experiment, in any state, without being recorded."""
        return self._text(self._tryouts.dumps(experiment))

    def allows_tryout(self, key: str, experiment: str) -> bool:
        """Return whether this key is for trying this experiment out."""
        try:
            return bool(self._tryouts.loads(key[:LONGEST_TOKEN], max_age=LOGIN_SECONDS) == experiment)
        except (BadSignature, ValueError, TypeError):
            return False

    def sign_login(self, name: str, password_hash: str) -> str:
        """Return the value of an experimenter's session cookie; it carries the seed of its CSRF token.

        It names the password that it was made with, so that a new password ends all sessions.
        """
        return self._text(self._logins.dumps([name, secrets.token_urlsafe(16), _mark(password_hash)]))

    def read_login(self, cookie: str) -> Login | None:
        """Return what a cookie says, or None when it was not made here, or is too old."""
        try:
            name, csrf, mark = self._logins.loads(cookie[:LONGEST_TOKEN], max_age=LOGIN_SECONDS)
        except (BadSignature, ValueError, TypeError):
            return None
        return Login(str(name), str(csrf), str(mark))

    @staticmethod
    def _text(value: str | bytes) -> str:
        return value.decode() if isinstance(value, bytes) else value

    @staticmethod
    def _payload(serializer: URLSafeSerializer, text: str, what: str) -> Any:
        try:
            return serializer.loads(text[:LONGEST_TOKEN])
        except BadSignature as error:
            raise ForgedError(
                f"{what} was not made by this server.",
                hint="Open the link of the study again; answers already given are kept.",
            ) from error


def _mark(password_hash: str) -> str:
    return hashlib.sha256(password_hash.encode()).hexdigest()[:16]


_HASHER = PasswordHasher()


def hash_password(password: str) -> str:
    """Return the argon2id hash of a password, with its own salt and parameters inside."""
    return _HASHER.hash(password)


def password_fits(password: str, password_hash: str) -> bool:
    """Return whether a password is the one that was hashed."""
    try:
        return _HASHER.verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False


class Attempts:
    """Wrong passwords of the last minute, by name; kept in this process, because they soon expire."""

    WINDOW_MS = 60_000

    def __init__(self, most: int) -> None:
        self._most = most
        self._failures: dict[str, list[int]] = {}
        self.nobodys_hash = hash_password(secrets.token_urlsafe(16))

    def wait_seconds(self, name: str, now_ms: int) -> float:
        """Return how long this name has to wait before the next attempt; 0 when it may try."""
        recent = [at for at in self._failures.get(name, []) if now_ms - at < self.WINDOW_MS]
        return (recent[-self._most] + self.WINDOW_MS - now_ms) / 1000 if len(recent) >= self._most else 0.0

    def note_failure(self, name: str, now_ms: int) -> None:
        """Remember a wrong password; names without a recent one are forgotten."""
        self._failures.setdefault(name, []).append(now_ms)
        self._failures = {
            known: recent
            for known, failures in self._failures.items()
            if (recent := [at for at in failures if now_ms - at < self.WINDOW_MS])
        }
