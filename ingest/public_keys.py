"""Signatures under public keys for the verification schemes, which know the standard library only."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key


def check_ed25519(key: bytes, signature: bytes, content: bytes) -> bool:
    """Whether the signature over the content is by the holder of this public key, 32 bytes. Never raises."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


def check_ecdsa(key: bytes, signature: bytes, content: bytes) -> bool:
    """Whether the signature, in DER, over the content's SHA-256 is by the holder of this key, SPKI. Never raises."""
    try:
        public = load_der_public_key(key)
        if not isinstance(public, EllipticCurvePublicKey):
            return False
        public.verify(signature, content, ECDSA(SHA256()))
    except Exception:  # noqa: BLE001 - what a key may be wrong in is the library's own list, and it grows
        return False
    return True
