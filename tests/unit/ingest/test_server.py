"""What an ingest process says about the doors it opens."""

import asyncio
from dataclasses import replace

import pytest
import structlog

from ingest.server import Ingest, IngestConfig, is_loopback
from tests.edge_stand import ACME, SIGNED, FakeConfiguration


@pytest.mark.parametrize("address", [("127.0.0.1", 80), ("127.9.9.9", 80), ("::1", 80, 0, 0), "/run/edge.sock"])
def test_only_this_machine_reaches_loopback_and_files(address: object) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", [("0.0.0.0", 80), ("::", 80, 0, 0), ("192.0.2.1", 80), ("somewhere", 80)])
def test_others_reach_every_other_address(address: object) -> None:
    assert not is_loopback(address)


@pytest.mark.parametrize(("host", "told"), [("0.0.0.0", ["acme, open"]), ("127.0.0.1", [])])
async def test_a_door_open_to_the_world_is_said_aloud_once(host: str, told: list[str]) -> None:
    ingest = Ingest(IngestConfig("postgresql://nowhere", "redis://nowhere", [bytes(32)]), asyncio.Event())
    ingest.configuration.snapshot = FakeConfiguration(ACME, SIGNED, replace(ACME, id=9, name="open")).snapshot

    with structlog.testing.capture_logs() as logged:
        ingest.warn_of_open_doors((host, 8080))

    assert [line["partners"] for line in logged] == told


async def test_before_anything_is_known_the_process_is_not_ready() -> None:
    ingest = Ingest(IngestConfig("postgresql://nowhere", "redis://nowhere", [bytes(32)]), asyncio.Event())

    assert ingest.health().status == "unready"
    assert "hunter2" not in repr(IngestConfig("postgresql://u:hunter2@h/d", "redis://:hunter2@h", [b"hunter2"]))
