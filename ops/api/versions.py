"""Edits that ask for what they change: `ETag` says which configuration was shown, `If-Match` which is to be changed."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Header

from domain.problems import Problem
from ops.api.means import Refused

# What changes without an edit, or stands in another table: no reason to refuse one.
BESIDE = frozenset({"state", "breaker", "in_flight", "subscriptions"})

IfMatch = Annotated[str | None, Header(max_length=1000, description="The `ETag` of what is to be changed.")]


def tag(document: Mapping[str, Any]) -> str:
    """The entity tag (RFC 9110, 8.8.3) of a partner's or destination's configuration."""
    chosen = {name: value for name, value in document.items() if name not in BESIDE}
    return f'"{hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:32]}"'


def require_match(if_match: str | None, document: Mapping[str, Any]) -> None:
    """Returns if an edit may go on. Raises: Refused (412) where something else stands there by now."""
    if if_match is None or if_match.strip() == "*":
        return
    if tag(document) not in [given.strip() for given in if_match.split(",")]:
        raise Refused(Problem(412, "changed", "It was changed meanwhile: read it again."))
