"""Fixtures of the integration tests; where they come from is said in their own modules."""

from tests.by_hand import hand
from tests.owner import elsewhere, make_owner, owner
from tests.pipeline import pipeline

__all__ = ["elsewhere", "hand", "make_owner", "owner", "pipeline"]
