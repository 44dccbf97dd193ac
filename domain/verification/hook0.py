"""Hook0: `X-Hook0-Signature: t=…,h=…,v1=…`, over the time, the headers that `h` names, and the body.

`v0` covers no headers. It counts only where no `v1` is offered: a weak signature does not rescue a wrong strong one.
"""

import re
from dataclasses import replace

from domain.verification.mac import Mac, Recipe
from domain.verification.scheme import Posting, Reason, Verdict, single

PLAIN = Recipe(header="X-Hook0-Signature", separators=",", prefix="v0=", timestamp="t=", content="{timestamp}.{body}")
STRONG = b",v1="
NAMES = re.compile(r"[A-Za-z0-9-]+( [A-Za-z0-9-]+)*")
MAX_NAMES = 16  # of headers that one signature covers


class Hook0(Mac):
    """Verifies as Hook0 does, and signs with v0."""

    name = "hook0"
    summary = "Hook0: X-Hook0-Signature"
    takes = "the subscription's secret"
    recipe = PLAIN
    dedupe = "header:x-event-id"
    type = "header:x-event-type"

    def verify(self, posting: Posting) -> Verdict:
        """Verified by v1 where it is offered, else by v0."""
        proof = single(posting.headers, self.recipe.header.lower().encode())
        if isinstance(proof, Reason) or STRONG not in proof:
            return super().verify(posting)
        names = [field[2:].decode("latin-1") for field in proof.split(b",") if field.startswith(b"h=")]
        if len(names) != 1 or len(names[0].split(" ")) > MAX_NAMES or not NAMES.fullmatch(names[0]):
            return Reason.MALFORMED
        covered = ".".join(f"{{header:{name}}}" for name in names[0].split(" "))
        content = f"{{timestamp}}.{names[0]}.{covered}.{{body}}"
        return self.judge(replace(PLAIN, prefix="v1=", content=content), posting)
