"""Signatures, passwords and one-time codes: what proves that a token was made by this server, and who somebody is."""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Any

import segno
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from itsdangerous import BadSignature, URLSafeSerializer, URLSafeTimedSerializer
from pyotp import random_base32
from pyotp.totp import TOTP

from frontend.errors import ForgedError
from salmon.records import Served
from salmon.wire import decode_served, encode_served

#: How long an experiment can be tried out with one link.
TRYOUT_SECONDS = 12 * 3600
#: How long the second step of a login, or of setting up a second factor, may take.
STEP_SECONDS = 10 * 60
#: A browser that has logged in is known for so long.
DEVICE_SECONDS = 365 * 24 * 3600
#: Longer texts were not signed by this server and are not hashed.
LONGEST_TOKEN = 4096


@dataclass(frozen=True)
class Session:
    """What a participant's page carries: which experiment, who, and which opening of the page."""

    experiment: str
    participant: str
    session: str


class Signer:
    """Signer and checker of texts; each purpose has its own salt, so that one kind never passes for another."""

    def __init__(self, secret: str) -> None:
        options: dict[str, Any] = {"digest_method": hashlib.sha256}
        self._secret = hashlib.sha256(f"invitations {secret}".encode()).digest()
        self._tokens = URLSafeSerializer(secret, salt="token", signer_kwargs=options)
        self._sessions = URLSafeSerializer(secret, salt="session", signer_kwargs=options)
        self._tryouts = URLSafeTimedSerializer(secret, salt="tryout", signer_kwargs=options)
        self._steps = URLSafeTimedSerializer(secret, salt="login-step", signer_kwargs=options)
        self._devices = URLSafeTimedSerializer(secret, salt="device", signer_kwargs=options)

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

    def sign_tryout(self, experiment: str) -> str:
        """Return the key with which somebody walks through an experiment, in any state, without being recorded."""
        return self._text(self._tryouts.dumps(experiment))

    def allows_tryout(self, key: str, experiment: str) -> bool:
        """Return whether this key is for trying this experiment out."""
        try:
            return bool(self._tryouts.loads(key[:LONGEST_TOKEN], max_age=TRYOUT_SECONDS) == experiment)
        except (BadSignature, ValueError, TypeError):
            return False

    def sign_invitation(self, experiment: str, number: int) -> str:
        """Return the value of a one-time link: its number, and a mark that this server alone can make."""
        return f"{number}.{self._mark_of_invitation(experiment, str(number))}"

    def check_invitation(self, experiment: str, invitation: str) -> None:
        """Raise ForgedError unless this server has made the one-time link for this experiment."""
        number, _, mark = invitation.partition(".")
        if not secrets.compare_digest(mark.encode(), self._mark_of_invitation(experiment, number).encode()):
            raise ForgedError(
                "This link was not made by this server, or a part of it is missing.",
                hint="Open the link of your invitation again, without changing it.",
            )

    def _mark_of_invitation(self, experiment: str, number: str) -> str:
        text = f"invitation {experiment} {number}"
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()[:20]

    def sign_step(self, purpose: str, account: str, content: str) -> str:
        """Return what a form carries from one step to the next: for which purpose, of which account, and what."""
        return self._text(self._steps.dumps([purpose, account, content]))

    def read_step(self, text: str, purpose: str) -> tuple[str, str] | None:
        """Return (account, content) of a form's first step; None when it was not made here, or is too old."""
        found = self._read(self._steps, text, STEP_SECONDS, 3)
        return (found[1], found[2]) if found and found[0] == purpose else None

    def sign_device(self, name: str, device: str) -> str:
        """Return the mark of a browser on which somebody of this name has logged in."""
        return self._text(self._devices.dumps([name, device]))

    def read_device(self, cookie: str, name: str) -> str:
        """Return the device that a cookie marks; "" when it was not made here, or for somebody else."""
        found = self._read(self._devices, cookie, DEVICE_SECONDS, 2)
        return found[1] if found and found[0] == name else ""

    @staticmethod
    def _read(serializer: URLSafeTimedSerializer, text: str, seconds: int, parts: int) -> list[str] | None:
        try:
            found = serializer.loads(text[:LONGEST_TOKEN], max_age=seconds)
        except (BadSignature, ValueError, TypeError):
            return None
        return [str(part) for part in found] if isinstance(found, list) and len(found) == parts else None

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


def draw_secret() -> str:
    """Return a new secret for a cookie, an API token or a link; nobody can guess it."""
    return secrets.token_urlsafe(32)


def digest_of(secret: str) -> str:
    """Return what is stored of a drawn secret. It is too long to be guessed, so the digest needs no salt."""
    return hashlib.sha256(secret.encode()).hexdigest()


def csrf_of(secret: str) -> str:
    """Return the CSRF token of the session with this secret; it does not lead back to the secret."""
    return hashlib.sha256(f"csrf:{secret}".encode()).hexdigest()[:32]


def mark_of(password_hash: str, role: str) -> str:
    """Return what a session remembers of its account's password and role; another mark ends it."""
    return hashlib.sha256(f"{role}:{password_hash}".encode()).hexdigest()[:16]


_HASHER = PasswordHasher()

#: Characters of a new password at least.
SHORTEST_PASSWORD = 10
#: The passwords of at least that length that leaked lists show most often.
_COMMON = frozenset(
    [
        "1234567890",
        "0123456789",
        "0987654321",
        "1111111111",
        "0000000000",
        "9876543210",
        "12345678910",
        "123456789a",
        "123456789q",
        "1q2w3e4r5t",
        "1q2w3e4r5t6y",
        "1qaz2wsx3edc",
        "q1w2e3r4t5",
        "q1w2e3r4t5y6",
        "qwertyuiop",
        "qwertzuiop",
        "azertyuiop",
        "qwerty1234",
        "qwerty12345",
        "qwerty123456",
        "qwertyuiop123",
        "asdfghjkl1",
        "asdfghjkl123",
        "password12",
        "password123",
        "password1234",
        "password12345",
        "password!1",
        "passw0rd123",
        "p@ssw0rd123",
        "p@ssword123",
        "mypassword",
        "thepassword",
        "newpassword",
        "passwordpassword",
        "changeme123",
        "changemenow",
        "letmein123",
        "letmein1234",
        "welcome123",
        "welcome1234",
        "iloveyou12",
        "iloveyou123",
        "abcdefghij",
        "abcdefghijk",
        "abcdefghijklmnop",
        "abc1234567",
        "abcd123456",
        "abcd1234567",
        "aaaaaaaaaa",
        "administrator",
        "admin12345",
        "admin123456",
        "superman123",
        "football123",
        "baseball123",
        "princess123",
        "sunshine123",
        "michael123",
        "jessica123",
        "charlie123",
        "dragon1234",
        "monkey1234",
        "salmon1234",
        "salmonsalmon",
        "experiment",
        "experimenter",
        "psychology",
        "correcthorse",
        "correcthorsebatterystaple",
        "trustno1234",
    ]
)
#: Names that the log and the history of experiments use for what no account has done.
_RESERVED = frozenset({"local", "server"})
_NAME = re.compile(r"[A-Za-z0-9._+-][A-Za-z0-9._@+-]{0,63}")


def complaint_about_name(name: str) -> str:
    """Return why an account may not have this name; "" where it may."""
    if not _NAME.fullmatch(name):
        return "A name has 1 to 64 letters, digits, dots, dashes, underscores, + and, not at its beginning, @."
    return f"The name {name!r} is reserved." if name.lower() in _RESERVED else ""


def complaint_about_password(name: str, password: str) -> str:
    """Return why somebody of this name may not choose this password; "" where they may."""
    if len(password) < SHORTEST_PASSWORD:
        return f"The password has fewer than {SHORTEST_PASSWORD} characters."
    if len(password) > 1024:
        return "The password has more than 1024 characters."
    if password.casefold() in {name.casefold(), name.casefold()[::-1], name.casefold() * 2}:
        return "The password is made of the name."
    if password.casefold() in _COMMON or len(set(password)) < 3:
        return "The password is one of those that are guessed first."
    return ""


def hash_password(password: str) -> str:
    """Return the argon2id hash of a password, with its own salt and parameters inside."""
    return _HASHER.hash(password)


def password_fits(password: str, password_hash: str) -> bool:
    """Return whether a password is the one that was hashed."""
    try:
        return _HASHER.verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False


class RecentPasswords:
    """Passwords that were right within the last minutes, so that scripts with HTTP Basic
    are not hashed at each request.

    Only digests are kept, under a key that this process draws, each for one name, one place and one stored hash.
    """

    _KEPT_MS = 5 * 60_000
    _MOST = 1000

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, tuple[str, int]] = {}
        self.nobodys_hash = hash_password(secrets.token_urlsafe(16))

    def digest(self, name: str, password: str, place: str) -> bytes:
        """Return the digest under which a password of this name from this place is known."""
        return hashlib.blake2b(f"{name}\0{place}\0{password}".encode(), key=self._key).digest()

    def known_hash(self, digest: bytes, now_ms: int) -> str:
        """Return the stored hash that this password was right for a short while ago; "" where it was not."""
        known_hash, at_ms = self._known.get(digest, ("", 0))
        return known_hash if now_ms - at_ms < self._KEPT_MS else ""

    def remember(self, digest: bytes, password_hash: str, now_ms: int) -> None:
        """Remember a password that was right."""
        if len(self._known) >= self._MOST:
            self._known.clear()
        self._known[digest] = (password_hash, now_ms)


#: Seconds for which one code of a second factor is shown.
_CODE_SECONDS = 30
_RECOVERY_CODES = 10


def draw_second_factor() -> str:
    """Return a new secret of one-time codes, as authenticator apps take it."""
    return random_base32()


def address_of_second_factor(secret: str, name: str, server: str) -> str:
    """Return the otpauth address of a secret, which authenticator apps read from a QR code."""
    return TOTP(secret).provisioning_uri(name=name, issuer_name=f"Salmon {server}".strip())


def draw_qr_code(text: str) -> str:
    """Return a QR code as the address of an SVG image, which carries it: black on white, because cameras expect it."""
    return segno.make(text, error="m").svg_data_uri(border=4, dark="#000", light="#fff", omitsize=True)


def moment_of_code(secret: str, code: str, now_ms: int) -> int | None:
    """Return the number of the half minute that a code belongs to: this, the last or
    the next; None where it is wrong.
    """
    digits = code.replace(" ", "")
    moment = now_ms // 1000 // _CODE_SECONDS
    fitting = [
        near
        for near in (moment, moment - 1, moment + 1)
        if secrets.compare_digest(TOTP(secret).at(near * _CODE_SECONDS).encode(), digits.encode())
    ]
    return fitting[0] if fitting else None


def draw_recovery_codes() -> tuple[str, ...]:
    """Return codes that each stand once for the second factor of somebody who has lost it."""
    letters = "abcdefghjkmnpqrstuvwxyz23456789"
    return tuple(
        "-".join("".join(secrets.choice(letters) for _ in range(5)) for _ in range(3)) for _ in range(_RECOVERY_CODES)
    )
