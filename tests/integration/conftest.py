"""Fixtures of the integration tests; where they come from is said in their own modules."""

from tests.by_hand import hand
from tests.pipeline import pipeline

__all__ = ["hand", "pipeline"]
