"""No proof at all: whoever reaches the endpoint may post."""

from domain.verification.scheme import VERIFIED, Draft, Posting, Scheme, Verdict


class Anybody(Scheme):
    """Accepts everything."""

    name = "none"
    summary = "no proof: anybody who can reach the endpoint may post"
    needs_secret = False
    dedupe = "header:webhook-id"
    type = "json:/type"

    def verify(self, posting: Posting) -> Verdict:  # noqa: ARG002 - nothing is asked for
        """Verified."""
        return VERIFIED

    def sign(self, draft: Draft) -> list[tuple[str, str]]:
        """The id alone; a type stands in the body."""
        return [("webhook-id", draft.identity)]

    def check_secret(self, text: str) -> None:  # noqa: ARG002 - no text will do
        """Raises: ValueError, always."""
        raise ValueError("--verify none takes no secret")

    def generate_secret(self, random: bytes) -> str:  # noqa: ARG002 - there is nothing to generate
        """Raises: ValueError, always."""
        raise ValueError("--verify none takes no secret")
