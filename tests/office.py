"""An ops process's server for tests, and clients of it: with the settings' token, another, a browser."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import sqlalchemy as sa

from ops.server import OpsConfig, run
from ops.settings import Settings
from storage import tokens
from tests.by_hand import Hand

TOKEN = "a-token-of-the-admins"
ADMIN = {"authorization": f"Bearer {TOKEN}"}
KEY = "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="  # 32 times k, as the hand's vault


@contextlib.asynccontextmanager
async def serving(database_url: str, **options: Any) -> AsyncIterator[str]:
    """An ops process's server; its URL."""
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    stop = asyncio.Event()
    given: dict[str, Any] = {
        "admin_token": TOKEN,
        "settings": Settings(database_url=database_url, master_key=KEY),
    } | options
    task = asyncio.create_task(run(OpsConfig(database_url, fd=listening.detach(), **given), stop))
    try:
        yield url
    finally:
        stop.set()
        await asyncio.wait_for(task, 5)


@contextlib.asynccontextmanager
async def running(database_url: str, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """An ops process's server, and a client of it."""
    async with serving(database_url, **options) as url, httpx.AsyncClient(base_url=url, timeout=15) as client:
        yield client


@dataclass(frozen=True, slots=True)
class Office:
    """An ops process, and the database behind it."""

    client: httpx.AsyncClient
    hand: Hand

    def bearer(self, role: str, name: str = "") -> dict[str, str]:
        """The header of a new token of this role."""
        with self.hand.store.begin() as connection:
            _, text = tokens.add(connection, name or f"a-{role}", role, actor="tester")
        return {"authorization": f"Bearer {text}"}

    def sql(self, statement: str) -> list[Any]:
        with self.hand.store.begin() as connection:
            result = connection.execute(sa.text(statement))
            return list(result) if result.returns_rows else []
