"""How a partner proves who it is: the schemes by name."""

from collections.abc import Mapping

from domain.values import shown
from domain.verification.github import GitHub
from domain.verification.none import Anybody
from domain.verification.scheme import (
    VERIFIED,
    CheckEd25519,
    Draft,
    Headers,
    Options,
    Posting,
    Reason,
    Scheme,
    Verdict,
    Verified,
)
from domain.verification.standard import Standard

__all__ = [
    "VERIFIED",
    "CheckEd25519",
    "Draft",
    "Headers",
    "Options",
    "Posting",
    "Reason",
    "Scheme",
    "Verdict",
    "Verified",
    "find_scheme",
    "schemes",
]


def _cannot_check(key: bytes, signature: bytes, content: bytes) -> bool:  # noqa: ARG001 - stands in for a real check
    return False


def schemes(check_ed25519: CheckEd25519 = _cannot_check) -> Mapping[str, Scheme]:
    """Every known scheme. Without `check_ed25519` no Ed25519 signature is accepted; all else works."""
    known: list[Scheme] = [Anybody(), Standard(check_ed25519), GitHub()]
    return {scheme.name: scheme for scheme in known}


def find_scheme(name: str) -> Scheme:
    """The scheme of this name: its defaults, its checks, its signing. Raises: ValueError listing the known ones."""
    known = schemes()
    if name not in known:
        raise ValueError(f"{shown(name)} is no verification scheme: {', '.join(known)}")
    return known[name]
