"""Whether the whole system is ready: every role is asked over its own socket, and the database by ourselves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

ASK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RoleHealth:
    """What one process says of itself: `ready`, `degraded` (it does its work, something is amiss) or `unready`."""

    status: str
    amiss: tuple[str, ...] = ()


async def ask(socket: Path) -> RoleHealth:
    """The health of the process behind a Unix socket; no answer in a second is one too."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            # No TLS on a Unix socket: without `verify=False` each question would load all certificates, for 30 ms.
            async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(verify=False, uds=str(socket))) as client:
                answer = await client.get("http://role/health/ready", timeout=ASK_SECONDS)
        told = answer.json()
        amiss = tuple(str(reason) for reason in told["amiss"])
        return RoleHealth(str(told["status"]) if answer.status_code == 200 else "unready", amiss)
    except (httpx.HTTPError, OSError, TimeoutError, ValueError, KeyError, TypeError):
        return RoleHealth("unready", ("no answer",))


async def ask_all(sockets: Mapping[str, Path]) -> dict[str, RoleHealth]:
    """Every process by its slot, asked at the same time."""
    return dict(zip(sockets, await asyncio.gather(*(ask(path) for path in sockets.values())), strict=True))


def verdict(database_up: bool, roles: Mapping[str, RoleHealth]) -> dict[str, Any]:
    """The document of `/health/ready`. The system is ready when the database is there and every role is."""
    statuses = {role.status for role in roles.values()}
    unready = not database_up or bool(statuses - {"ready", "degraded"})
    return {
        "status": "unready" if unready else "degraded" if "degraded" in statuses else "ready",
        "amiss": [] if database_up else ["database away"],
        "roles": {slot: {"status": role.status, "amiss": list(role.amiss)} for slot, role in roles.items()},
    }
