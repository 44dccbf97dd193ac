"""These tests run on uvloop, as the ingest process does: its transports differ from asyncio's in what they forgive."""

import asyncio
from collections.abc import Callable, Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop of this folder's tests."""
    return {"uvloop": uvloop.new_event_loop}
