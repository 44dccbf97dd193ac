"""A bare secret in a header: `basic`, `bearer`, `api-key`, and providers that do the same.

Such a header is neither stored nor passed on: whoever sees it could post.
"""

import base64
import hmac

from domain.verification.scheme import (
    NO_OPTIONS,
    VERIFIED,
    DefaultOptions,
    Draft,
    Options,
    Posting,
    Reason,
    Scheme,
    Verdict,
    check_text,
    single,
)


class ApiKey(Scheme):
    """The secret as it is, in a header of the partner's choice."""

    name = "api-key"
    summary = "a secret in a header, --verify-header (x-api-key)"
    takes = "the key"
    dedupe = "header:webhook-id"
    type = "json:/type"
    options: DefaultOptions = {"header": "x-api-key"}  # noqa: RUF012 - never changed

    def header(self, options: Options) -> str:
        """Where the secret stands."""
        return options["header"]

    def written(self, secret: str) -> bytes:
        """The header's value for a secret."""
        return secret.encode()

    def read(self, value: bytes) -> bytes:
        """A header's value, spelled as `written` spells it; empty if it cannot be one."""
        return value

    def check_secret(self, text: str) -> None:
        """Any text: it can only be guessed by asking. Raises: ValueError."""
        check_text(text)

    def verify(self, posting: Posting) -> Verdict:
        """Verified if the header has one of the secrets, exactly."""
        given = single(posting.headers, self.header(posting.options).lower().encode())
        if isinstance(given, Reason):
            return given
        value = self.read(given)
        if not value:
            return Reason.MALFORMED
        if any(hmac.compare_digest(self.written(secret), value) for secret in posting.secrets if secret):
            return VERIFIED
        return Reason.MISMATCH if posting.secrets else Reason.UNCONFIGURED

    def sign(self, draft: Draft) -> list[tuple[str, str]]:
        """The header with the secret."""
        return [(self.header(draft.options), self.written(draft.secret).decode())]

    def bare_secret_headers(self, options: Options) -> frozenset[bytes]:
        """That header."""
        return frozenset({self.header(options).lower().encode()})


class Bearer(ApiKey):
    """`Authorization: Bearer TOKEN` (RFC 6750); the word in any case."""

    name = "bearer"
    summary = "Authorization: Bearer, the secret is the token"
    takes = "the token"
    options = NO_OPTIONS
    authenticate = b"Bearer"

    def header(self, options: Options) -> str:  # noqa: ARG002 - always the same
        """Where the secret stands."""
        return "Authorization"

    def written(self, secret: str) -> bytes:
        """The word and the token."""
        return b"Bearer " + secret.encode()

    def read(self, value: bytes) -> bytes:
        """The word as we spell it, the rest as it is."""
        word = self.written("")
        return word + value[len(word) :] if value[: len(word)].lower() == word.lower() else b""


class Basic(Bearer):
    """`Authorization: Basic base64(user:password)` (RFC 7617), UTF-8; the word in any case."""

    name = "basic"
    summary = "Authorization: Basic, the secret is user:password"
    takes = "user:password"
    authenticate = b'Basic realm="hookyard", charset="UTF-8"'

    def written(self, secret: str) -> bytes:
        """The word and the encoded pair."""
        return b"Basic " + base64.b64encode(secret.encode())

    def check_secret(self, text: str) -> None:
        """A user and a password with a colon between; only the password may have more of them. Raises: ValueError."""
        check_text(text)
        user, _, password = text.partition(":")
        if not user or not password:
            raise ValueError("a secret of --verify basic is user:password")

    def generate_secret(self, random: bytes) -> str:
        """The user `hookyard` and a password."""
        return f"hookyard:{random.hex()}"


class GitLab(ApiKey):
    """The secret token as it is. Webhooks with a signing token are Standard Webhooks."""

    name = "gitlab"
    summary = "GitLab: X-Gitlab-Token (with a signing token: standard)"
    takes = "the secret token"
    dedupe = "header:Idempotency-Key"
    type = "header:X-Gitlab-Event"
    options = NO_OPTIONS
    on_backlog_full = "accept"  # a webhook that is refused four times is disabled

    def header(self, options: Options) -> str:  # noqa: ARG002 - always the same
        """Where the secret stands."""
        return "X-Gitlab-Token"


class Telegram(ApiKey):
    """The secret token of `setWebhook`, as it is."""

    name = "telegram"
    summary = "Telegram bots: X-Telegram-Bot-Api-Secret-Token"
    takes = "the secret_token of setWebhook"
    dedupe = "json:/update_id"
    type = "none"
    options = NO_OPTIONS

    def header(self, options: Options) -> str:  # noqa: ARG002 - always the same
        """Where the secret stands."""
        return "X-Telegram-Bot-Api-Secret-Token"
