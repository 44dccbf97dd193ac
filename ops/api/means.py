"""What a request to the API works with: the desk, the vault, who asks; and pages of long lists."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, Query, Request

from domain.problems import Problem
from ops.access import Caller, caller
from ops.background import Background
from ops.desk import Desk
from ops.watch import Watch
from storage.errors import Invalid
from storage.secrets import Vault
from storage.tokens import Role

if TYPE_CHECKING:
    from ops.settings import Settings

Item = TypeVar("Item")

LIMIT, MOST = 100, 1_000  # items of a page


class Refused(Exception):
    """The request is answered with this problem."""

    def __init__(self, problem: Problem, headers: dict[str, str] | None = None) -> None:
        super().__init__(problem.detail)
        self.problem, self.headers = problem, headers


@dataclass(frozen=True)
class Means:
    """One ops process's means."""

    desk: Desk
    background: Background
    watch: Watch
    settings: Settings

    @property
    def vault(self) -> Vault:
        """Opens and seals. Raises: Refused where this process knows no master key."""
        if not self.settings.master_keys:
            raise Refused(Problem(503, "no_master_key", "HOOKYARD_MASTER_KEY is not set for the ops role."))
        return Vault(self.settings.master_keys)

    @property
    def vault_if_known(self) -> Vault | None:
        """The vault, or None where no master key is known and perhaps none is needed."""
        return self.vault if self.settings.master_keys else None


def means(request: Request) -> Means:
    """The means of the application that was asked."""
    found: Means = request.app.state.means
    return found


def holding(needed: Role) -> Callable[[Request], Caller]:
    """A dependency: who asks, if their role may do what needs this one."""

    def check(request: Request) -> Caller:
        found = caller(request)
        if not found.may(needed):
            raise Refused(Problem(403, "forbidden", f"This needs the role {needed}; yours is {found.role}."))
        return found

    return check


UseMeans = Annotated[Means, Depends(means)]
Viewer = Annotated[Caller, Depends(holding("viewer"))]
Operator = Annotated[Caller, Depends(holding("operator"))]
Admin = Annotated[Caller, Depends(holding("admin"))]

Limit = Annotated[int, Query(ge=1, le=MOST, description="Items of a page.")]
Cursor = Annotated[
    str | None, Query(max_length=500, pattern="^[A-Za-z0-9_-]+$", description="`next` of the page before.")
]


def page(items: Sequence[Any], following: Sequence[Any] | None) -> dict[str, Any]:
    """A page as it is answered: its items, and where the next one begins (null: this was the last)."""
    return {"items": list(items), "next": None if following is None else cursor_of(following)}


def cut(found: Sequence[Item], limit: int, key: Callable[[Item], Sequence[Any]]) -> tuple[Sequence[Item], Any]:
    """Of one item more than a page the page, and the key of its last item if there is more."""
    shown = found[:limit]
    return shown, key(shown[-1]) if len(found) > limit else None


def cursor_of(key: Sequence[Any]) -> str:
    """A key as a cursor: nobody's business what is in it."""
    plain = [part.isoformat() if isinstance(part, datetime) else part for part in key]
    return base64.urlsafe_b64encode(json.dumps(plain).encode()).decode().rstrip("=")


def key_of(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """The key of a cursor, its parts of these kinds; None without one. Raises: Invalid."""
    if cursor is None:
        return None
    try:
        parts = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(parts, list) or len(parts) != len(kinds):
            raise ValueError
        return tuple(_part(part, kind) for part, kind in zip(parts, kinds, strict=True))
    except (ValueError, TypeError, AttributeError, RecursionError, binascii.Error) as problem:
        raise Invalid("cursor: no page begins there") from problem


def _part(part: Any, kind: type) -> Any:
    if kind is datetime:
        moment = datetime.fromisoformat(part)
        if moment.tzinfo is None:
            raise ValueError
        return moment
    fits = 0 <= part < 1 << 63 if kind is int else part.isprintable()
    if type(part) is not kind or not fits:
        raise ValueError
    return part
