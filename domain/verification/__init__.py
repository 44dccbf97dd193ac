"""How a partner proves who it is: the schemes by name."""

from collections.abc import Mapping
from functools import cache

from domain.values import shown
from domain.verification.adyen import Adyen, AdyenPayments
from domain.verification.box import Box
from domain.verification.custom import Custom
from domain.verification.hook0 import Hook0
from domain.verification.messagebird import MessageBird
from domain.verification.meta import Meta
from domain.verification.none import Anybody
from domain.verification.presets import PRESETS
from domain.verification.public_keys import Discord, SendGrid
from domain.verification.scheme import (
    VERIFIED,
    CheckSignature,
    Draft,
    Headers,
    Options,
    Posting,
    Reason,
    Response,
    Scheme,
    Verdict,
    Verified,
)
from domain.verification.slack import Slack
from domain.verification.standard import Standard, Svix
from domain.verification.tokens import ApiKey, Basic, Bearer, GitLab, Telegram
from domain.verification.twilio import Twilio
from domain.verification.twitch import Twitch
from domain.verification.woocommerce import WooCommerce
from domain.verification.x import X
from domain.verification.zoom import Zoom

__all__ = [
    "VERIFIED",
    "CheckSignature",
    "Draft",
    "Headers",
    "Options",
    "Posting",
    "Reason",
    "Response",
    "Scheme",
    "Verdict",
    "Verified",
    "chosen_options",
    "find_scheme",
    "schemes",
]

GENERAL: tuple[type[Scheme], ...] = (Custom, Basic, Bearer, ApiKey)
PROVIDERS: tuple[type[Scheme], ...] = (
    *PRESETS, Adyen, AdyenPayments, Box, GitLab, Hook0, MessageBird, Meta, Slack, Telegram, Twilio, Twitch,
    WooCommerce, X, Zoom,
)  # fmt: skip


def _cannot_check(key: bytes, signature: bytes, content: bytes) -> bool:  # noqa: ARG001 - stands in for a real check
    return False


@cache
def schemes(
    check_ed25519: CheckSignature = _cannot_check, check_ecdsa: CheckSignature = _cannot_check
) -> Mapping[str, Scheme]:
    """Every known scheme: the general ones, then the providers by name.

    Without the checks no signature under a public key is accepted; all else works.
    """
    general = [Anybody(), Standard(check_ed25519), *(kind() for kind in GENERAL)]
    providers = [Svix(check_ed25519), Discord(check_ed25519), SendGrid(check_ecdsa), *(kind() for kind in PROVIDERS)]
    return {scheme.name: scheme for scheme in [*general, *sorted(providers, key=lambda scheme: scheme.name)]}


def find_scheme(name: str) -> Scheme:
    """The scheme of this name: its defaults, its checks, its signing. Raises: ValueError listing the known ones."""
    known = schemes()
    if name not in known:
        raise ValueError(f"{shown(name)} is no verification scheme: {', '.join(known)}")
    return known[name]


def chosen_options(scheme: Scheme, given: Options) -> dict[str, str]:
    """All options of a scheme: as given, else at their defaults. Raises: ValueError, also for another scheme's."""
    for name in given:
        if name not in scheme.options:
            owners = ", ".join(other.name for other in schemes().values() if name in other.options)
            raise ValueError(f"--verify-{name} does not belong to --verify {scheme.name}, but to {owners or 'none'}")
    options = {name: text for name, text in {**scheme.options, **given}.items() if text is not None}
    scheme.check_options(options)
    return options
