"""Signed links of Prolific: whether the token in a participant's link was made by Prolific,
for this page and this person.

The token is a JSON Web Token of RS256. The public keys come from Prolific and are kept for an hour; a key that is not
among them is asked for again, at most once a minute, so that nobody makes this server ask by inventing keys.
"""

import asyncio
import base64
import binascii
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from frontend.errors import LinkError, PlatformError
from salmon.logs import fields
from salmon.wire import decode_json

log = logging.getLogger("salmon.prolific")

#: The parameter of the link that holds the token.
TOKEN = "prolific_token"  # noqa: S105
#: The ids that the token and the link must agree on.
_IDS = ("PROLIFIC_PID", "STUDY_ID", "SESSION_ID")
_ISSUERS = frozenset({"https://www.prolific.com", "https://api.prolific.com", "https://app.prolific.com", "prolific"})
#: How long keys are kept, how soon they are asked for again, and how far clocks may differ (ms).
_KEPT_MS, _SOONEST_MS, _SKEW_MS = 3_600_000, 60_000, 60_000
_SECONDS = 5.0
_LONGEST_TOKEN, _MOST_BYTES, _MOST_KEYS = 4096, 200_000, 20


@dataclass(frozen=True)
class PublicKey:
    """A public RSA key: its modulus and exponent."""

    n: int
    e: int


class StudyKeys:
    """Prolific's public keys, as they were last read."""

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")
        self._keys: dict[str, PublicKey] = {}
        self._read_ms = 0
        self._tried_ms = 0
        self._lock = asyncio.Lock()

    async def find(self, identifier: str, *, now_ms: int) -> PublicKey | None:
        """Return the key of this id; None where Prolific has none. PlatformError where its keys cannot be read."""
        async with self._lock:
            is_old = now_ms - self._read_ms > _KEPT_MS
            if (identifier not in self._keys or is_old) and now_ms - self._tried_ms >= _SOONEST_MS:
                self._tried_ms = now_ms
                try:
                    self._keys = await self._fetch()
                    self._read_ms = now_ms
                except PlatformError as error:
                    log.warning("prolific's keys were not read", extra=fields(error=error.message))
            if identifier not in self._keys and not self._read_ms:
                raise PlatformError(
                    "The link cannot be checked: Prolific's public keys cannot be read.", hint="Try again in a minute."
                )
            return self._keys.get(identifier)

    async def _fetch(self) -> dict[str, PublicKey]:
        import httpx

        try:
            async with asyncio.timeout(_SECONDS), httpx.AsyncClient(base_url=self._address) as client:
                reply = await client.get("/.well-known/study/jwks.json")
            if not reply.is_success or len(reply.content) > _MOST_BYTES:
                raise PlatformError(f"Prolific answered with status {reply.status_code}.", hint="Try again later.")
            return _read_keys(decode_json(reply.text))
        except (httpx.HTTPError, TimeoutError, ValueError) as error:
            raise PlatformError("Prolific's keys cannot be read.", hint="Try again later.") from error


async def check_link(
    parameters: Mapping[str, str], address: str, keys: StudyKeys, *, now_ms: int, expires: bool = True
) -> None:
    """Raise LinkError unless Prolific has signed a link for the page at this address, and for the ids that it names.

    Without `expires` a link counts whose time is over: the page is shown again when it is reloaded in the middle.
    """
    token = parameters.get(TOKEN, "").strip()
    if not token:
        raise _refusal("The link is not signed by Prolific, and this study takes signed links only.", fault="missing")
    header, claims, signed, signature = _parts(token)
    key = await keys.find(str(header.get("kid", "")), now_ms=now_ms) if header.get("alg") == "RS256" else None
    if key is None or not await asyncio.to_thread(_fits, key, signed, signature):
        raise _refusal("The link was not signed by Prolific.")
    issuer = claims.get("iss")
    if issuer is not None and issuer not in _ISSUERS:
        raise _refusal("The link was signed for something else than a study.")
    if expires and not _is_in_time(claims, now_ms):
        raise _refusal("The link has expired, or is not valid yet.")
    if not _is_for(claims.get("aud"), address):
        raise _refusal("The link was signed for another study.")
    ids: Any = claims.get("prolific")
    known = cast("dict[str, Any]", ids) if isinstance(ids, dict) else {}
    if any(str(known.get(name, "")) != parameters.get(name, "").strip() or not known.get(name) for name in _IDS):
        raise _refusal("The ids in the link are not those that Prolific has signed.")


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    """Return (header, claims, what was signed, signature) of a token; LinkError where it is none."""
    first, _, rest = token.partition(".")
    second, _, third = rest.partition(".")
    try:
        header, claims = (decode_json(_decode(part)) for part in (first, second))
        signature = _decode(third)
    except (ValueError, RecursionError):
        header, claims, signature = None, None, b""
    if len(token) > _LONGEST_TOKEN or not isinstance(header, dict) or not isinstance(claims, dict):
        raise _refusal("The signature in the link cannot be read.")
    signed = f"{first}.{second}".encode()
    return cast("dict[str, Any]", header), cast("dict[str, Any]", claims), signed, signature


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(text) from error


def _read_keys(content: Any) -> dict[str, PublicKey]:
    """Return the RSA keys of a key set, by their id; others are passed over."""
    found: dict[str, PublicKey] = {}
    entries: Any = content.get("keys") if isinstance(content, dict) else None  # pyright: ignore[reportUnknownMemberType]
    for entry in cast("list[Any]", entries)[:_MOST_KEYS] if isinstance(entries, list) else ():
        values = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        if values.get("kty") != "RSA" or values.get("alg", "RS256") != "RS256" or not values.get("kid"):
            continue
        n, e = (int.from_bytes(_decode(str(values.get(part, "")))) for part in ("n", "e"))
        if 2048 <= n.bit_length() <= 8192 and 3 <= e <= 2**32:
            found[str(values["kid"])] = PublicKey(n, e)
    return found


def _fits(key: PublicKey, signed: bytes, signature: bytes) -> bool:
    """Return whether a signature of RS256 (RSASSA-PKCS1-v1_5 with SHA-256) is that of this text."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        RSAPublicNumbers(key.e, key.n).public_key().verify(signature, signed, PKCS1v15(), SHA256())
    except (InvalidSignature, ValueError):
        return False
    return True


def _is_in_time(claims: Mapping[str, Any], now_ms: int) -> bool:
    """Return whether a token has an end that is not over, and has begun."""
    ends, begins = claims.get("exp"), claims.get("nbf", 0)
    if not isinstance(ends, int | float) or not isinstance(begins, int | float):
        return False
    return begins * 1000 - _SKEW_MS <= now_ms < ends * 1000 + _SKEW_MS


def _is_for(audience: Any, address: str) -> bool:
    """Return whether a token is for the page at this address: it names the address, or the server alone."""
    named: list[Any] = cast("list[Any]", audience) if isinstance(audience, list) else [audience]
    ours = urlsplit(address)
    for each in named:
        given = urlsplit(str(each)) if "://" in str(each) else urlsplit(f"{ours.scheme}://{each}")
        if given.netloc == ours.netloc and given.path.rstrip("/") in {"", ours.path.rstrip("/")}:
            return True
    return False


def _refusal(message: str, *, fault: Any = "wrong") -> LinkError:
    return LinkError(
        message, fault=fault, hint="Open the study from Prolific again, without changing its link.", where=TOKEN
    )
