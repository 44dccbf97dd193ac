"""Twilio: `X-Twilio-Signature`, a SHA-1 HMAC over the URL as Twilio knows it and the form's parameters, sorted.

A body that is no form is covered by its SHA-256 in the query's `bodySHA256`, which is part of that URL.
"""

import hashlib
import hmac
import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

from domain.verification.mac import ITS_URL, Mac, Recipe, known_url
from domain.verification.scheme import Posting, Reason, Verdict, asked

MAX_PARAMETERS = 1000
PORT = re.compile(r":[0-9]+$")


class Twilio(Mac):
    """Verifies and signs as Twilio does."""

    name = "twilio"
    summary = "Twilio: X-Twilio-Signature, with --verify-url"
    takes = "the account's auth token"
    recipe = Recipe(header="X-Twilio-Signature", encoding="base64", algorithm="sha1")
    dedupe = "header:I-Twilio-Idempotency-Token"
    type = "none"
    options = ITS_URL
    on_backlog_full = "accept"  # does not retry unless it is told to

    def verify(self, posting: Posting) -> Verdict:
        """Verified with the URL as it is, or with its port left out or said: Twilio does either."""
        verdict: Verdict = Reason.MISMATCH
        for url in _spellings(posting.options["url"]):
            verdict = super().verify(posting._replace(options={"url": url}))
            if verdict is not Reason.MISMATCH:
                break
        return verdict

    def content(self, recipe: Recipe, posting: Posting, stamp: bytes) -> bytes | Reason:  # noqa: ARG002 - none
        """The URL and, of a form, each name with its values, sorted and each once."""
        url = known_url(posting)
        digest = asked(posting.query).get("bodySHA256")
        if digest is not None:
            actual = hashlib.sha256(posting.body).hexdigest()
            return url if hmac.compare_digest(actual.encode(), digest.lower().encode()) else Reason.MISMATCH
        try:
            text = posting.body.decode("ascii")
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
        except ValueError:
            return Reason.MALFORMED
        return url + "".join(name + value for name, value in sorted(set(pairs))).encode()


def _spellings(url: str) -> Iterator[str]:
    """The URL as it is, without a port, and with the scheme's own."""
    yield url
    parts = urlsplit(url)
    bare = PORT.sub("", parts.netloc)
    for place in (bare, bare + (":443" if parts.scheme == "https" else ":80")):
        if place != parts.netloc:
            yield parts._replace(netloc=place).geturl()
