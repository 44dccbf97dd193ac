"""MessageBird (Bird): `MessageBird-Signature-JWT`, a token that holds the hashes of the URL and the body (RFC 7519)."""

import base64
import hashlib
import hmac
import json
from typing import Any

from domain.verification.mac import ITS_URL, known_url
from domain.verification.scheme import VERIFIED, Draft, Posting, Reason, Scheme, Verdict, single

HEADER = "MessageBird-Signature-JWT"
ALGORITHMS = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}  # `none` is none of them
ISSUER = "MessageBird"
LEEWAY_SECONDS = 1  # of the official libraries
VALID_SECONDS = 60
MAX_TOKEN = 4096  # bytes


class MessageBird(Scheme):
    """Verifies and signs as MessageBird does."""

    name = "messagebird"
    summary = "MessageBird: MessageBird-Signature-JWT, with --verify-url"
    takes = "the signing key"
    dedupe = "none"
    type = "none"
    options = ITS_URL

    def verify(self, posting: Posting) -> Verdict:
        """Verified if the token is by one of the secrets, holds now, and is of this URL and body."""
        token = single(posting.headers, HEADER.lower().encode())
        if isinstance(token, Reason):
            return token
        if len(token) > MAX_TOKEN:
            return Reason.MALFORMED
        signed, _, given = token.rpartition(b".")
        try:
            head, claims = (_decode(part) for part in signed.split(b"."))
            algorithm = ALGORITHMS[head["alg"]]
            not_before, expires = float(claims.get("nbf", 0)), float(claims["exp"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return Reason.MALFORMED
        signatures = [_encode(hmac.digest(secret.encode(), signed, algorithm)) for secret in posting.secrets if secret]
        if not any(hmac.compare_digest(signature, given) for signature in signatures):
            return Reason.MISMATCH if posting.secrets else Reason.UNCONFIGURED
        if not_before > posting.now + LEEWAY_SECONDS:
            return Reason.EARLY
        if not expires >= posting.now - LEEWAY_SECONDS:
            return Reason.STALE
        hashes = claims.get("iss"), claims.get("url_hash"), claims.get("payload_hash")
        return VERIFIED if hashes == _hashes(posting) else Reason.MISMATCH

    def sign(self, draft: Draft) -> list[tuple[str, str]]:
        """The token; id and type stand in the body, if anywhere."""
        issuer, url_hash, payload_hash = _hashes(Posting((), draft.body, (), draft.options, draft.now))
        claims: dict[str, Any] = {"iss": issuer, "nbf": int(draft.now), "exp": int(draft.now) + VALID_SECONDS}
        claims |= {"jti": draft.identity, "url_hash": url_hash}
        if payload_hash:
            claims["payload_hash"] = payload_hash
        parts = ({"alg": "HS256", "typ": "JWT"}, claims)
        signed = b".".join(_encode(json.dumps(part).encode()) for part in parts)
        return [(HEADER, (signed + b"." + _encode(hmac.digest(draft.secret.encode(), signed, "sha256"))).decode())]


def _hashes(posting: Posting) -> tuple[str, str, str | None]:
    """The issuer, and the hashes that a token of this request has; without a body there is none of it."""
    url = hashlib.sha256(known_url(posting)).hexdigest()
    return ISSUER, url, hashlib.sha256(posting.body).hexdigest() if posting.body else None


def _encode(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def _decode(part: bytes) -> dict[str, Any]:
    """A part of a token. Raises: ValueError."""
    value = json.loads(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value
