"""Ed25519 for the verification schemes, which know the standard library only."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def check_ed25519(key: bytes, signature: bytes, content: bytes) -> bool:
    """Whether the signature over the content is by the holder of this public key. Never raises."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True
