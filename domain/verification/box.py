"""Box: `box-signature-primary` and `-secondary` over `body timestamp`, two keys that rotate one by one."""

from dataclasses import replace

from domain.verification.mac import Mac, Recipe
from domain.verification.scheme import VERIFIED, Draft, Posting, Reason, Verdict, single

SAID = {"box-signature-version": "1", "box-signature-algorithm": "HmacSHA256"}


class Box(Mac):
    """Verifies and signs as Box does. Both keys are secrets of the partner; one signature that matches is enough."""

    name = "box"
    summary = "Box: box-signature-primary or -secondary"
    takes = "the primary key, and again the secondary key"
    recipe = Recipe(
        header="box-signature-primary", encoding="base64", content="{body}{timestamp}",
        timestamp="box-delivery-timestamp", unit="iso", past_seconds=600, future_seconds=0,
    )  # fmt: skip
    dedupe = "header:box-delivery-id"
    type = "json:/trigger"

    def verify(self, posting: Posting) -> Verdict:
        """Verified if either signature matches."""
        for name, text in SAID.items():
            said = single(posting.headers, name.encode())
            if said != text.encode():
                return said if isinstance(said, Reason) else Reason.MALFORMED
        verdict = self.judge(self.recipe, posting)
        if verdict is VERIFIED:
            return verdict
        second = self.judge(replace(self.recipe, header="box-signature-secondary"), posting)
        return second if second is VERIFIED else verdict

    def sign(self, draft: Draft) -> list[tuple[str, str]]:
        """With the one key there is, as the primary one."""
        return [*super().sign(draft), *SAID.items()]
